#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program as a rank of MPICH's mpiexec. If a signal ends the program, ends with a status
# instead, because when a signal ends a rank, mpiexec kills the other ranks immediately, even with
# -disable-auto-cleanup.
# KOLO_TEST_STARTER, in the program's environment, is the process that started all ranks.
#
# Usage: mpiexec -disable-auto-cleanup -np N status_of.sh PROGRAM [ARGUMENT...]
KOLO_TEST_STARTER=$PPID "$@"
exit $?
