#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC1091,SC2016,SC2154
# kolorun --tee and --filter: which output goes to files, and which appears here.
#
# Usage: output_test.sh KOLORUN RANK_PROGRAM DIRECTORY
rendezvous=$(cd "$(dirname "$0")/../../rendezvous" && pwd)
source "$rendezvous/jobs.sh"
export FAKE_SSH_DIR=$work KOLO_RSH="sh $rendezvous/fake_ssh.sh"
says='echo out $RANK; echo error $RANK >&2'

# only NAME LINES: the output has these lines and no others, in any order.
only() { [[ $(sort <<<"$output") == "$(sort <<<"$2")" ]] || fail "$1: $output"; }
# files NAME FOLDER RANKS: these ranks, and no others, have written files.
files() {
  local rank all
  for rank in $3; do
    [[ $(cat "$2/rank.$rank.out") == "out $rank" && $(cat "$2/rank.$rank.err") == "error $rank" ]] ||
      fail "$1: of rank $rank: $(head "$2"/*)"
  done
  all=("$2"/rank.*.out)
  ((${#all[@]} == $(wc -w <<<"$3"))) || fail "$1: ${all[*]}"
}

expect "files alone" 0 '' "$kolorun" -np 2 --output-dir alone sh -c "$says"
only "files alone" ''
expect "tee" 0 '' "$kolorun" -np 2 --output-dir tee --tee sh -c "$says"
only "tee" $'out 0\nerror 0\nout 1\nerror 1'
files "tee" tee "0 1"
expect "tee with tags" 0 '' "$kolorun" -np 2 --output-dir tags --tee --tag-output sh -c "$says"
only "tee with tags" $'[0] out 0\n[0] error 0\n[1] out 1\n[1] error 1'
files "tee with tags" tags "0 1"
expect "tee on two hosts" 0 '' \
  "$kolorun" -H node1:2,node2 --network-interface lo --output-dir hosts --tee sh -c "$says"
only "tee on two hosts" $'out 0\nerror 0\nout 1\nerror 1\nout 2\nerror 2'
files "tee on two hosts" hosts "0 1 2"
expect "a line without an end" 0 '^two$' "$kolorun" -np 1 --output-dir end --tee printf 'one\ntwo'
cmp <(printf 'one\ntwo') end/rank.0.out || fail "a line without an end: $(od -c end/rank.0.out)"
expect "much" 0 '' "$kolorun" -np 2 --output-dir much --tee seq 200000
[[ $(wc -l <<<"$output") == 400000 ]] || fail "much: $(wc -l <<<"$output") lines"
for rank in 0 1; do
  cmp <(seq 200000) "much/rank.$rank.out" || fail "much: rank $rank"
done

expect "filter" 0 '' "$kolorun" -np 6 --filter 0,3-4 sh -c "$says"
only "filter" $'out 0\nerror 0\nout 3\nerror 3\nout 4\nerror 4'
expect "filter with tags" 0 '' "$kolorun" -np 3 --filter 2 --tag-output sh -c "$says"
only "filter with tags" $'[2] out 2\n[2] error 2'
expect "filter with files" 0 '' "$kolorun" -np 3 --filter 1 --output-dir filter --tee sh -c "$says"
only "filter with files" $'out 1\nerror 1'
files "filter with files" filter "0 1 2"
expect "filter on two hosts" 0 '' \
  "$kolorun" -H node1:2,node2 --network-interface lo --filter 1-2 sh -c "$says"
only "filter on two hosts" $'out 1\nerror 1\nout 2\nerror 2'
expect "a rank that is not shown fails" 3 $'^    no data$\nrank 1 .*it has ended with status 3$' \
  "$kolorun" -np 2 --filter 0 sh -c '[ $RANK = 0 ] || { echo "no data" >&2; exit 3; }; sleep 30'
expect "a shown rank fails" 3 $'^    no data$' "$kolorun" -np 2 --output-dir fails --tee --filter 1 sh -c \
  '[ $RANK = 0 ] || { echo "no data" >&2; exit 3; }; sleep 30'
grep -q '"no data"' fails/rank.1.error.json || fail "a shown rank fails: $(cat fails/*.json)"
expect "processes that are started later" 3 '^later$' \
  "$kolorun" -np 2 --min-np 1 --max-np 2 --cooldown 0.1:1 --filter 0 sh -c \
  '[ -n "$RANK" ] || { echo later; touch later; exit 0; }
  [ "$RANK" = 0 ] || exit 3; until [ -e later ]; do sleep 0.05; done'

again='echo out $RANK; echo error $RANK >&2; [ $KOLO_RESTARTS = 1 ] || exit 3'
expect "attempts" 0 '' "$kolorun" -np 1 --output-dir attempts --tee --max-restarts 1 sh -c "$again"
(($(grep -c '^out 0$' <<<"$output") == 2)) || fail "attempts: $output"
files "the first attempt" attempts 0
files "the second attempt" attempts/restart.1 0

mkdir full
ln -s /dev/full full/rank.0.out
expect "a full disk" 1 $'^out 0$\n^kolorun: \'full/rank.0.out\' cannot be written, and is lost: No space left' \
  "$kolorun" -np 1 --output-dir full --tee sh -c "$says"

expect "tee without files" 2 '--tee is for --output-dir' "$kolorun" -np 1 --tee true
expect "filter without a screen" 2 'with --output-dir it needs --tee' "$kolorun" -np 1 --output-dir none --filter 0 true
expect "no such rank" 2 'there is no rank 4 in a job of 4 processes' "$kolorun" -np 4 --filter 0-4 true
for list in ',' '1,' 2-1 a 1-2-3 -1 1- 99999999999999999999; do
  expect "no list: $list" 2 "'$list' is not a list of ranks" "$kolorun" -np 4 --filter="$list" true
done
conclude "the output of kolorun"
