#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# The rows of fully_sharded.csv for two emulated hosts with one rank on each, and a link of 1 Gbit/s with a delay of
# 1 ms. Needs root for the hosts.
# Usage: fully_sharded_between_hosts.sh PROGRAMS [OPTION...]
#   PROGRAMS  directory of bench-fully-sharded and link_emulator
#   OPTION    of bench-fully-sharded
set -euo pipefail
programs=$(cd "$1" && pwd)
shift
ranks=1 delay=1000 mtu=9000
source "$(dirname "$0")/../tests/hosts/emulated_hosts.sh"

make_hosts
connect 1000 0
on_hosts "$programs/bench-fully-sharded" "$@" | sed -n 's/^[0-9]*,/1 Gbit\/s,&/p'
