#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a program as a rank of MPICH's mpiexec, and ends with a status where a signal ended the program.
# When a signal ends a rank, mpiexec kills the others at once, also with -disable-auto-cleanup.
#
# Usage: mpiexec -disable-auto-cleanup -np N status_of.sh PROGRAM [ARGUMENT...]
"$@"
exit $?
