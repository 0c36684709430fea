#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the lines of a hostfile whose hosts answer by ssh. Usage with kolorun:
#
#     kolorun -np 8 --min-np 4 --max-np 16 --host-discovery-script './discover_hosts.sh hostfile' ./train
set -eu
rsh=${KOLO_RSH:-ssh -o BatchMode=yes -o ConnectTimeout=2}
while read -r host slots; do
  $rsh "${host%:*}" true </dev/null >/dev/null 2>&1 && echo "$host $slots" &
done <"$1"
wait
