#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2054,SC2154
# kolorun --bind-to: the processors that the processes may use. Ends with status 77 if this test may
# not use the processors 0 and 1.
#
# Usage: binding_test.sh KOLORUN RANK_PROGRAM DIRECTORY
taskset -c 0,1 true && taskset -c 1 true || exit 77
rendezvous=$(cd "$(dirname "$0")/../../rendezvous" && pwd)
source "$rendezvous/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $rendezvous/fake_ssh.sh"
shows='echo $RANK $(sed -n "s/^Cpus_allowed_list:\\t//p" /proc/self/status)'
# hwloc takes its word for it.
export HWLOC_SYNTHETIC="numa:2 core:1 pu:1" HWLOC_THISSYSTEM=1
both=(taskset -c 0,1 "$kolorun")

expect "none" 0 $'^0 0(-|,)1$\n^1 0(-|,)1$' "${both[@]}" -np 2 sh -c "$shows"
expect "core" 0 $'^0 0$\n^1 1$' "${both[@]}" -np 2 --bind-to core sh -c "$shows"
expect "the share of one" 0 $'^0 0(-|,)1$' "${both[@]}" -np 1 --bind-to core sh -c "$shows"
expect "numa" 0 $'^0 0$\n^1 0$\n^2 1$\n^3 1$' "${both[@]}" -np 4 --bind-to numa sh -c "$shows"
expect "the processors of kolorun" 0 $'^0 1$' taskset -c 1 "$kolorun" -np 1 --bind-to core sh -c "$shows"
expect "too few cores" 127 \
  "^kolorun: --bind-to core: 3 processes, but kolorun may use only 2 cores of this host; start fewer here" \
  "${both[@]}" -np 3 --bind-to core sh -c "$shows"
! grep -q '^[012] ' <<<"$output" || fail "too few cores: $output"
(($(grep -c '^kolorun: --bind-to core: 3' <<<"$output") == 1)) || fail "too few cores: more than once: $output"
# fake_ssh.sh takes no variables along; the other host has two cores in one node.
expect "another host" 0 $'^1 1$' taskset -c 0,1 "$kolorun" -H node2:2 --network-interface lo --bind-to core sh -c "$shows"
expect "too few cores there" 127 "^kolorun on node2: --bind-to core: 3 processes" \
  taskset -c 0,1 "$kolorun" -H node2:3 --network-interface lo --bind-to core sh -c "$shows"
expect "an elastic job" 0 $'^0 0$\n^1 1$' \
  "${both[@]}" -np 2 --min-np 1 --slots 2 --bind-to core sh -c "$shows"
expect "another word" 2 'bind-to' "$kolorun" -np 1 --bind-to socket true
conclude "kolorun --bind-to"
