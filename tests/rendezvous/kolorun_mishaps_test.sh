#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# Failures around kolorun: no descriptor is free, a port is in use.
#
# Usage: kolorun_mishaps_test.sh KOLORUN RANK_PROGRAM DIRECTORY SESSION_PROGRAM
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
session_program=$4
export FAKE_SSH_DIR=$work KOLO_RSH="sh $here/fake_ssh.sh"
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
port=$((13000 + $$ % 4000))

# No descriptor is free at the moment at which the script of hosts ends.
echo localhost:2 >hosts
starts found.log "$kolorun" --network-interface lo --cooldown 0.2:1 -np 2 --min-np 1 --max-np 4 --host-discovery-script \
  'echo asked >>asked; until mv go gone 2>/dev/null; do sleep 0.05; done; cat hosts' \
  "$rank_program" 1000000000
job=$!
touch go
meets "no descriptor" found.log '^generation 1: rank 1 of 2, commit 0'
until (($(wc -l <asked) == 2)); do sleep 0.05; done
prlimit --pid "$job" --nofile=3:
printf 'localhost:2\n192.0.2.1:1\n' >hosts
touch go
meets "no descriptor" found.log '--host-discovery-script: .*getifaddrs: Too many open files.*; the hosts stay as they are'
prlimit --pid "$job" --nofile=512:
printf 'localhost:2\nnode2:1\n' >hosts
while sleep 0.1; do touch go; done &
answering=$!
meets "descriptors again" found.log '^generation [2-4]: rank [0-2] of 3, commit [1-9]'
kill -TERM "$job"
ends "no descriptor" "$job" 143 found.log
kill "$answering"

# With too few descriptors, kolorun says so. It ends at once or, where its own connections wait for
# descriptors, when a signal comes.
for most in 4 5 6 7 8 12 16 20; do
  status=0
  (ulimit -n "$most" && exec timeout -k 60 10 "$kolorun" -np 2 true) >few.log 2>&1 || status=$?
  ((status != 137)) || fail "$most descriptors: kolorun does not end"
  ((status == 0)) || [[ -s few.log ]] || fail "$most descriptors: kolorun has failed without a word"
done

# A job is started again while its port is still in use, by a name of this host that is not its own.
named() { exec unshare --mount sh -c 'mount --bind hosts /etc/hosts && exec "$@"' sh "$@"; }
{ cat /etc/hosts; echo "127.0.0.1 alias.of.this.host"; } >hosts
if (named true) 2>/dev/null; then
  alone=(named "$kolorun" -np 1 --rendezvous "alias.of.this.host:$port" --slots 1 --secret-file secret)
  starts first.log "$kolorun" -np 1 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret --grace 3 \
    sh -c 'trap "" TERM; echo here; while :; do sleep 0.1; done'
  first=$!
  meets "the port by another name" first.log '^here$'
  kill -TERM "$first"
  meets "the port by another name" first.log 'signal 15: the job ends'
  starts second.log "${alone[@]}" "$rank_program" 5
  second=$!
  meets "the port by another name" second.log '^done: rank 0 of 1, commit 5$'
  kill -TERM "$second" 2>/dev/null
  wait "$second"
  ends "the port by another name" "$first" 143 first.log

  # The server listens at all addresses of its name.
  outer=$(hostname -I | tr ' ' '\n' | grep -m 1 '^[0-9.]*$')
  if [[ -n $outer ]]; then
    { cat /etc/hosts; echo "$outer two.addresses"; echo "127.0.0.5 two.addresses"; } >hosts
    for address in 127.0.0.5 "$outer"; do
      port=$((port + 1))
      starts serving.log named "$kolorun" -np 2 --rendezvous "two.addresses:$port" --slots 1 \
        --secret-file secret "$rank_program" 5
      serving=$!
      for ((i = 0; i < 400; ++i)); do
        grep -qi ":$(printf %04X "$port") .* 0A " /proc/net/tcp /proc/net/tcp6 && break
        sleep 0.05
      done
      expect "a name of two addresses, $address" 0 '^done: rank 1 of 2, commit 5$' \
        "$kolorun" -np 2 --rendezvous "$address:$port" --slots 1 --secret-file secret "$rank_program" 5
      ends "a name of two addresses, $address" "$serving" 0 serving.log
    done
  fi
fi

# Another program has the port: kolorun says why it does not serve.
port=$((port + 1))
python3 -c 'import signal, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    signal.pause()' "$port" >other.log </dev/null &
other=$!
meets "a port in use" other.log listening
expect "a port in use" 1 'no rendezvous server was found .*Address already in use' \
  "$kolorun" -np 1 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret --start-timeout 0.2 true
starts used.log "$kolorun" -np 1 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret true
job=$!
meets "a port in use" used.log 'still looking for the rendezvous server: .*Address already in use'
kill -TERM "$job"
ends "a port in use" "$job" 143 used.log
kill "$other"

# A process that has ended well leaves its background process running; one that has failed does not.
mkfifo go_on
for status in 0 3; do
  expect "a background process, status $status" "$status" '' "$kolorun" -np 1 sh -c \
    'sh -c "echo \$\$ >background; read -r word <go_on; echo \$word >uploaded" >/dev/null 2>&1 &
    until [ -s background ]; do sleep 0.05; done; exit "$1"' sh "$status"
  if ((status == 0)); then
    timeout 20 sh -c 'echo done >go_on'
    meets "a background process" uploaded '^done$'
    rm background
  else
    gone "a background process" "$(cat background)"
  fi
done

# The job is ended: also the background process of a shell that then exits with status 0.
rm background
starts ended.log "$kolorun" -np 1 sh -c \
  'trap "exit 0" TERM; sh -c "trap \"\" TERM; echo \$\$ >background; read -r word <go_on" >/dev/null 2>&1 &
  until [ -s background ]; do sleep 0.05; done; echo here; while :; do sleep 0.1; done'
job=$!
meets "a background process of a job that is ended" ended.log '^here$'
kill -TERM "$job"
ends "a background process of a job that is ended" "$job" 0 ended.log
gone "a background process of a job that is ended" "$(cat background)"

# kolorun is killed; its children are shells that do not end what they have started.
starts killed.log "$kolorun" -np 2 bash -c "echo \$\$ >pid.\$RANK; '$session_program'; true"
job=$!
meets "kolorun is killed" killed.log '^rank [01] has begun' 2
mapfile -t ranks < <(pgrep -P "$(cat pid.0)"; pgrep -P "$(cat pid.1)")
kill -KILL "$job"
wait "$job"
meets "kolorun is killed" killed.log '^ended: .*kolorun has ended'
gone "kolorun is killed" "${ranks[@]}"

# Ctrl-Z stops the ranks too.
starts stop.log "$kolorun" -np 2 sh -c 'echo $$ >stopped.$RANK; exec "$@"' sh "$rank_program" 1000000000
job=$!
meets "Ctrl-Z" stop.log '^generation 1: rank [01] of 2' 2
# are STATE: until these processes are in the state.
are() {
  local pid
  for pid in "$job" $(cat stopped.0 stopped.1); do
    for ((i = 0; i < 600; ++i)); do
      [[ $(sed 's/.*) //' "/proc/$pid/stat") == $1* ]] && continue 2
      sleep 0.1
    done
    fail "Ctrl-Z: process $pid is not in state $1"
  done
}
kill -TSTP "$job"
are T
kill -CONT "$job"
are '[RSD]'
kill -TERM "$job"
ends "Ctrl-Z" "$job" 143 stop.log

# The job is over, but a kolorun on another host does not answer: a second signal does not wait for it.
port=$((port + 1))
two=(-np 2 --rendezvous "127.0.0.1:$port" --slots 1 --secret-file secret)
starts first.log "$kolorun" "${two[@]}" "$rank_program" 1000000000
first=$!
until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
starts second.log "$kolorun" "${two[@]}" "$rank_program" 1000000000
second=$!
meets "a host that does not answer" second.log '^generation 1: rank 1 of 2'
kill -STOP "$second"
SECONDS=0
while kill -TERM "$first" 2>/dev/null; do sleep 0.5; done
((SECONDS < 12)) || fail "a host that does not answer: kolorun has waited $SECONDS s for it"
ends "a host that does not answer" "$first" 143 first.log
kill -KILL "$second"
wait "$second"
conclude "mishaps of kolorun"
