#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# The training time that each algorithm of the example local_sgd needs to reach a given test loss,
# on two hosts emulated by network namespaces, one rank on each, joined by a slow link. Prints the
# rows of local_sgd_time.csv: one per epoch, with the seconds of training so far. Needs root.
# Usage: local_sgd_time.sh PROGRAMS DATA [MBIT [EPOCHS [IMAGES [ALGORITHMS [SEED]]]]]
#   PROGRAMS    directory of local_sgd and link_emulator
#   DATA        directory of CIFAR-10's binary files
#   MBIT        bandwidth of the link in Mbit/s, in each direction (100)
#   EPOCHS      number of epochs (8)
#   IMAGES      number of training images (10000)
#   ALGORITHMS  "average local diloco"
#   SEED        seed of all random numbers (1)
set -euo pipefail
programs=$(cd "$1" && pwd) data=$(cd "$2" && pwd)
mbit=${3:-100} epochs=${4:-8} images=${5:-10000} algorithms=${6:-average local diloco} seed=${7:-1}
ranks=1 delay=100 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

make_hosts
connect "$mbit" 0
for algorithm in $algorithms; do
  on_hosts "$programs/local_sgd" --algorithm "$algorithm" --data-dir "$data" --limit "$images" \
    --epochs "$epochs" --seed "$seed" |
    sed -nu 's/^epoch \([0-9]*\): train loss \([0-9.]*\), test loss \([0-9.]*\), test accuracy \([0-9.]*\), \([0-9.]*\) s, \([0-9]*\) bytes.*/\1 \2 \3 \4 \5 \6/p' |
    awk -v algorithm="$algorithm" '{
      seconds += $5
      printf "%s,%d,%.1f,%s,%s,%s,%s\n", algorithm, $1, seconds, $2, $3, $4, $6
      fflush()
    }'
done
