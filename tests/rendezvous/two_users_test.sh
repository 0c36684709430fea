#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs of two users of one host, side by side: never with a common rank. Under torchrun's variables
# both jobs have one address and no secret, so one of them gets it, and the other fails. Needs root.
#
# Usage: two_users_test.sh KOLORUN USER_PROGRAM DIRECTORY [MPIRUN]
set -euo pipefail
kolorun=$1 program=$2 folder=$3 mpirun=${4:-}
((EUID == 0)) || { echo "only root can become other users"; exit 77; }
users=(65533 65534)
rm -rf "$folder"
mkdir -p "$folder"
for user in "${users[@]}"; do install -d -o "$user" "$folder/$user"; done
export KOLO_FLIGHT_RECORDER_DIR=off OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

as() { # USER COMMAND...
  local user=$1
  shift
  env HOME="$folder/$user" TMPDIR="$folder/$user" timeout 100 \
    setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"
}
as "${users[0]}" test -x "$program" || { echo "other users cannot execute $program"; exit 77; }

fail() {
  printf 'two_users_test.sh: %s\n' "$*" >&2
  tail -n 20 "$folder"/*.log "$folder"/*/*.log >&2
  exit 1
}

# Waits for the jobs in `pids`.
finish() { # NAME WINNERS: so many jobs succeed at least
  local pid status won=0
  for pid in "${pids[@]}"; do
    status=0
    wait "$pid" || status=$?
    ((status <= 1)) || fail "$1: a job has ended with status $status"
    won=$((won + (status == 0)))
  done
  ((won >= $2)) || fail "$1: the jobs of $won users have succeeded"
}

# As torchrun, it ends the other rank once one has failed.
cat >"$folder/both_ranks" <<'END'
#!/bin/bash
# both_ranks PROGRAM PORT LOG RANK RANK: the ranks in the order in which they come
for rank in "$4" "$5"; do
  env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT="$2" TORCHELASTIC_RUN_ID=none "$1" >"$3.$rank.log" 2>&1 &
done
for end in 1 2; do
  wait -n || {
    status=$?
    kill $(jobs -p) 2>/dev/null
    exit $status
  }
done
END
chmod 755 "$folder" "$folder/both_ranks"

# The second user has rank 1 only, which comes while the first one's rank 0 waits for its own.
rank() { # RANK
  RANK=$1 WORLD_SIZE=2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 KOLO_RENDEZVOUS_PORT=$port \
    TORCHELASTIC_RUN_ID=none as "$2" "$program" >"$folder/$2.$1.log" 2>&1
}
port=$((24100 + ($$ + 5) % 3000))
rank 0 "${users[0]}" &
first=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
  kill -0 "$first" 2>/dev/null || fail "rank 0 does not wait"
done
rank 1 "${users[1]}" && taken=1 || taken=0
if grep -q 'the kernel does not say' "$folder/${users[0]}.0.log"; then
  kill "$first"
  echo "the kernel does not say which users hold connections"
  exit 77
fi
((taken == 0)) || fail "another user's rank 1 is taken"
grep -q 'another user of this host' "$folder/${users[1]}.1.log" || fail "it was not refused as another user"
rank 1 "${users[0]}" || fail "the own rank 1 is not taken"
wait "$first" || fail "the job has failed after another user's call"

for ((round = 0; round < 6; ++round)); do
  port=$((24100 + ($$ + 7 * round) % 3000)) pids=()
  for user in "${users[@]}"; do
    order=(0 1)
    ((round < 3 || user == users[0])) || order=(1 0)
    as "$user" "$folder/both_ranks" "$program" "$port" "$folder/$user/round$round" "${order[@]}" &
    pids+=($!)
  done
  finish "torchrun's variables, round $round" 1
done
starters=("$kolorun")
[[ -z $mpirun ]] || starters+=("$mpirun")
for starter in "${starters[@]}"; do
  pids=()
  for user in "${users[@]}"; do
    as "$user" "$starter" -np 2 "$program" >"$folder/${starter##*/}.$user.log" 2>&1 &
    pids+=($!)
  done
  finish "$starter" 2
done

# A secret file of root is taken, since container engines provide it so, unless others may write to it.
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/secret"
with_secret() {
  as "${users[0]}" "$kolorun" -np 1 --rendezvous "127.0.0.1:$((port + 40))" --slots 1 \
    --secret-file "$folder/secret" true >"$folder/secret.log" 2>&1
}
chmod 644 "$folder/secret"
with_secret || fail "a secret of root is refused"
chmod 664 "$folder/secret"
with_secret && fail "a secret is taken that others may change"
grep -q "others can read or change" "$folder/secret.log" || fail "a secret of root: another refusal"
echo "two users: all as expected"
