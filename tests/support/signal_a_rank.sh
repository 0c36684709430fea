# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Source this file in tests of programs that stop when a rank gets a signal.

# signal_a_rank SIGNAL DIRECTORY COMMAND...: starts ranks, and sends the signal to one of them once
# the directory has a checkpoint. Fails unless the job ends with status 0.
signal_a_rank() {
  local signal=$1 directory=$2 job ranks
  "${@:3}" &
  job=$!
  until compgen -G "$directory/checkpoint-??????????" >/dev/null; do
    if ! kill -0 "$job" 2>/dev/null; then
      echo "the run ended before its first checkpoint" >&2
      return 1
    fi
    sleep 0.02
  done
  read -r -a ranks <"/proc/$job/task/$job/children" || true # the line has no end
  kill "-$signal" "${ranks[-1]}"
  wait "$job"
}
