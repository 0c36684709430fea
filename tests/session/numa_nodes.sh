#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program on N ranks of a host that seems to have two NUMA nodes with one processor each:
# even ranks are on one node, odd ranks on the other. Usage: numa_nodes.sh LAUNCHER N PROGRAM
set -euo pipefail
launcher=$1 ranks=$2 program=$3
taskset -c 0 true && taskset -c 1 true || exit 77
# hwloc takes its word for it.
export HWLOC_SYNTHETIC="numa:2 pu:1" HWLOC_THISSYSTEM=1 PROGRAM=$program
# shellcheck disable=SC2016
exec "$launcher" -np "$ranks" bash -c \
  'exec taskset -c $(((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${KOLO_RANK:-0}}}) % 2)) "$PROGRAM"'
