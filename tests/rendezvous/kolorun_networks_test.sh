#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2046,SC2054,SC2086,SC2154
# kolorun on two hosts emulated by network namespaces, each with an interface that leads nowhere:
# one kolorun on each host, a cable that is cut and restored, and one kolorun that starts the other.
# Needs root.
#
# Usage: kolorun_networks_test.sh KOLORUN RANK_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/jobs.sh"
source "$here/namespaces.sh"

# One kolorun on each; that which comes first waits for the server.
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
two=(--rendezvous 10.213.78.1:4711 --slots 2 --secret-file secret)
starts second.log "${on_second[@]}" "$kolorun" -np 4 "${two[@]}" sh -c 'echo $RANK $MASTER_ADDR; exec "$@"' sh "$rank_program" 5
other=$!
expect "two hosts" 0 $'^generation 1: rank [01] of 4\n^0 10.213.78.1$\n^1 10.213.78.1$' \
  "${on_first[@]}" "$kolorun" -np 4 "${two[@]}" sh -c 'echo $RANK $MASTER_ADDR; exec "$@"' sh "$rank_program" 5
ends "two hosts" "$other" 0 second.log
meets "two hosts" second.log '^generation 1: rank 3 of 4'
meets "two hosts" second.log '^2 10.213.78.1$'

# A name that means a loopback address on its own host, as Debian writes it.
printf '127.0.0.1 localhost\n127.0.1.1 first alias\n' >hosts.first
printf '127.0.0.1 localhost\n10.213.78.1 first alias\n' >hosts.second
for name in first alias; do
  named=(--rendezvous "$name:4712" --slots 1 --secret-file secret)
  starts second.log unshare --mount sh -c 'mount --bind hosts.second /etc/hosts; exec "$@"' sh "${on_second[@]}" \
    "$kolorun" -np 2 "${named[@]}" "$rank_program" 5
  other=$!
  expect "a host's own name" 0 '^done: rank 0 of 2, commit 5$' unshare --mount sh -c \
    'mount --bind hosts.first /etc/hosts; exec "$@"' sh "${on_first[@]}" "$kolorun" -np 2 "${named[@]}" "$rank_program" 5
  ends "a host's own name" "$other" 0 second.log
done

# A failure on the one ends the processes of the other, with the same status.
# The other kolorun says why.
starts second.log "${on_second[@]}" "$kolorun" -np 4 "${two[@]}" "$rank_program" 6 exit 1 3
other=$!
expect "a failure" 3 'rank 3 .* on second.*it has ended with status 3' \
  "${on_first[@]}" "$kolorun" -np 4 "${two[@]}" "$rank_program" 6 exit 1 3
ends "a failure" "$other" 3 second.log
meets "a failure" second.log '^kolorun: rank 3 .*status 3'
# The cable is pulled: the far processes end by themselves, the near ones go on. Then it is put back.
# The lease is long: on a loaded machine, an agent may get no processor for seconds, and would be
# lost before the cable is pulled.
elastic=(-np 4 --min-np 2 --lease 10 --cooldown 0.2:1 -v "${two[@]}" "$rank_program" 1000000000)
starts first.log "${on_first[@]}" "$kolorun" "${elastic[@]}"
near=$!
starts second.log "${on_second[@]}" "$kolorun" "${elastic[@]}"
far=$!
meets "a cable" second.log '^generation 1: rank 3 of 4'
processes=$(ip netns pids "$second" | while read -r pid; do
  [[ $(cat "/proc/$pid/comm") == rank_program ]] && echo "$pid"
done)
(($(wc -w <<<"$processes") == 2)) || fail "a cable: processes $processes"
cut_cable
meets "a cable that is pulled" first.log '^generation 2: rank 1 of 2, commit [1-9]'
meets "a cable that is pulled" second.log 'the rendezvous server at 10.213.78.1:4711 sent nothing for [0-9.]+ s'
gone "a cable that is pulled" $processes
mend_cable
meets "a cable that is put back" first.log '^generation 3: rank 0 of 4, commit [1-9]'
meets "a cable that is put back" second.log '^generation 3: rank 3 of 4, commit [1-9]'
# A signal to the host that serves ends the job on both.
kill -TERM "$near"
ends "the end" "$near" 143 first.log
ends "the end" "$far" 143 second.log

# One that starts the other, and tells it all its addresses.
cat >rsh <<END
#!/bin/sh
shift
exec ip netns exec $second env FAKE_HOST=second sh -c "\$*"
END
expect "one that starts the other" 0 $'^generation 1: rank 3 of 4\n^3 second 10.213.[67][78].1$' \
  "${on_first[@]}" "$kolorun" -H localhost:2,second:2 --rsh "sh $work/rsh" \
  sh -c 'echo $RANK $FAKE_HOST $MASTER_ADDR; exec "$@"' sh "$rank_program" 5
expect "a network" 0 '^3 second 10.213.78.1 wire wire$' \
  "${on_first[@]}" "$kolorun" -H localhost:2,second:2 --rsh "sh $work/rsh" --network-interface wire \
  sh -c 'echo $RANK $FAKE_HOST $MASTER_ADDR $KOLO_CONTROL_INTERFACE ${NCCL_SOCKET_IFNAME#=}'
expect "a network that is not there" 1 'names no interface that is up.*wire \(10.213.78.1\)' \
  "${on_first[@]}" "$kolorun" -H localhost:2,second:2 --rsh "sh $work/rsh" --network-interface eth77 true
conclude "kolorun on two networks"
