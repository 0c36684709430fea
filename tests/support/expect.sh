#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command and checks how it ends.
# Usage: expect.sh STATUS PATTERN COMMAND...
#   STATUS: a number, `nonzero`, or `any` for a program that is not killed. PATTERN: an extended
#   regular expression that a line of standard output or error must match; with status `any`, the
#   whole output joined to one line must match. An empty PATTERN matches any output.
set -u
status=$1 pattern=$2
shift 2

output=$("$@" 2>&1)
got=$?
printf '%s\n' "$output"

# mpirun's own time ran out, so the program hung: Open MPI's status, and MPICH's words.
if [[ $output == *"APPLICATION TIMED OUT"* ]]; then got=110; fi
if [[ $status == nonzero ]]; then
  if ((got == 0 || got == 110)); then
    echo "expect: exit status $got, wanted a failure of the program itself" >&2
    exit 1
  fi
elif [[ $status == any ]]; then
  if ((got == 110)); then
    echo "expect: the program hung" >&2
    exit 1
  fi
  output=$(tr '\n' ' ' <<<"$output")
elif ((got != status)); then
  echo "expect: exit status $got, wanted $status" >&2
  exit 1
fi
if [[ -n $pattern ]] && ! grep -Eq -- "$pattern" <<<"$output"; then
  echo "expect: no line of the output matches: $pattern" >&2
  exit 1
fi
