#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2034,SC2154
# Elastic training on two hosts emulated by network namespaces: the cable between them is cut and
# restored, and a host is removed and returns. Needs root.
#
# Usage: networks_test.sh KOLORUN ELASTIC_PROGRAM DIRECTORY
here=$(cd "$(dirname "$0")" && pwd)
source "$here/../rendezvous/jobs.sh"
source "$here/../rendezvous/namespaces.sh"
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
# The lease ends the sessions of those that are left: their sockets wait for ever. It is long: on a
# loaded machine, an agent may get no processor for seconds, and would be lost too early.
export KOLO_PEER_TIMEOUT=0
job=("$kolorun" -np 4 --min-np 2 --lease 10 --cooldown 0.2:1 --rendezvous 10.213.78.1:4711 --slots 2
  --secret-file secret -v "$rank_program" "$work" epochs=1000000 pause_ms=2
  load_for=1)
starts first.log "${on_first[@]}" "${job[@]}"
near=$!
starts second.log "${on_second[@]}" "${job[@]}"
far=$!
meets "the start" first.log '^session of 4 ranks from step 0'
until [[ -s steps ]] || ! kill -0 "$near"; do sleep 0.05; done
cut_cable
meets "a cable that is pulled" first.log '^session of 2 ranks from step [1-9]'
mend_cable
meets "a cable that is put back" first.log '^session of 4 ranks from step [1-9]'
# Its host leaves in good order, and comes again.
losses=$(grep -c 'is lost' first.log)
kill -TERM "$far"
ends "a host that is removed" "$far" 0 second.log
meets "a host that is removed" first.log '^session of 2 ranks from step [1-9]' 2
(($(grep -c 'is lost: its host is removed' first.log) == $(grep -c 'is lost' first.log) - losses)) ||
  fail "a host that is removed: $(tail -20 first.log)"
starts third.log "${on_second[@]}" "${job[@]}"
far=$!
meets "a host that comes again" first.log '^session of 4 ranks from step [1-9]' 2
kill -TERM "$near"
ends "the end" "$near" 143 first.log
ends "the end" "$far" 143 third.log
conclude "elastic training on two networks"
