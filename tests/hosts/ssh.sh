#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests kolorun with OpenSSH: in a bare Debian 12, starts sshd on loopback, and runs jobs on two
# hosts, which are two names of this machine; also for a user whose shell is tcsh.
#
# Usage: tests/hosts/ssh.sh DIRECTORY   (as root; needs mmdebstrap)
#   DIRECTORY        folder of kolorun and rank_program
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
programs=$(cd "$1" && pwd)
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/../package/with_bare_root.sh"
rm -rf --one-file-system "$root/kolo"
mkdir -p "$root/kolo"
cp "$programs"/{kolorun,rank_program} "$sources/tests/rendezvous/jobs.sh" "$root/kolo/"
packages_of "$programs"/{kolorun,rank_program} >"$root/kolo/libraries"

cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
say() { printf '\n== %s\n' "$*"; }
cd /kolo
if ! command -v sshd >/dev/null; then
  say "Installation"
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends openssh-server openssh-client procps tcsh \
    $(cat libraries) >install.log 2>&1 || { cat install.log; exit 1; }
fi
say "sshd"
# Without a password, and not locked.
id teacher >/dev/null 2>&1 || useradd --create-home --shell /usr/bin/tcsh teacher
usermod --password '*' teacher
chmod 755 /kolo
mkdir -p /run/sshd /root/.ssh ~teacher/.ssh
[[ -e key ]] || ssh-keygen -q -t ed25519 -N '' -f key
[[ -e host_key ]] || ssh-keygen -q -t ed25519 -N '' -f host_key
for home in /root ~teacher; do cp key.pub "$home/.ssh/authorized_keys"; done
chown -R teacher: ~teacher/.ssh
cat >sshd_config <<CONF
ListenAddress 127.0.0.1
Port 2222
HostKey /kolo/host_key
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication yes
CONF
/usr/sbin/sshd -D -e -f sshd_config >sshd.log 2>&1 &
sshd=$!
trap 'kill "$sshd"' EXIT
cat >config <<CONF
Host node1 node2
  HostName 127.0.0.1
  Port 2222
  IdentityFile /kolo/key
  IdentitiesOnly yes
  UserKnownHostsFile /kolo/known_hosts
  StrictHostKeyChecking accept-new
Host stranger
  HostName 127.0.0.1
  Port 2222
  PubkeyAuthentication no
  UserKnownHostsFile /kolo/known_hosts
CONF
for ((attempt = 0; attempt < 100; attempt++)); do
  ssh -F config node1 true 2>/dev/null && break
  sleep 0.1
done
bash -c 'source ./jobs.sh /kolo/kolorun /kolo/rank_program /kolo/work; source ../jobs_by_ssh.sh'
INSIDE

cat >"$root/kolo/jobs_by_ssh.sh" <<'JOBS'
export KOLO_RSH="ssh -F /kolo/config"
two=("$kolorun" -H node1:2,node2:2)
expect "ranks by host" 0 $'^0 4 0 127.0.0.1 .* 2222$\n^3 4 1 127.0.0.1 .* 2222$' \
  "${two[@]}" sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $SSH_CONNECTION'
expect "a session" 0 $'^generation 1: rank 3 of 4, commit 0$\n^done: rank 0 of 4, commit 5$' "${two[@]}" "$rank_program" 5
expect "this host and another" 0 '^done: rank 2 of 3, commit 5$' "$kolorun" -H localhost,node2:2 "$rank_program" 5
expect "words, tags, variables" 0 "^\\[3\\] a b[\$]c 'd' \"e\" x y\$" "${two[@]}" --tag-output -x "GIVEN=x y" \
  sh -c 'echo "$@" "$GIVEN"' sh "a b\$c 'd' \"e\""
expect "a user with another shell" 0 '^teacher a b[$]c' "$kolorun" -H teacher@node1 sh -c 'echo $(id -un) "$@"' sh 'a b$c'
expect "an exit status" 3 'rank 3 .*it has ended with status 3' "${two[@]}" "$rank_program" 6 exit 1 3
expect "a signal of a rank" 137 'rank 2 .*signal 9' "${two[@]}" "$rank_program" 6 kill 1 2
expect "no key" 1 $'Permission denied\n^kolorun: the job has failed: host stranger: ssh has ended with status 255' "$kolorun" -H node1,stranger true
[[ $(seq 300000 | timeout 100 "${two[@]}" md5sum | sort | uniq -c) == *"1 $(seq 300000 | md5sum)"* ]] || fail "input"
[[ $(timeout 100 "${two[@]}" --tag-output seq 100000 | sort | uniq | wc -l) == 400000 ]] || fail "output"

# A reader that pauses loses nothing, though ssh does not wait for it.
lines=$(timeout 100 "$kolorun" -H localhost:1,node2:1 --lease 1 seq 200000 | (sleep 3; wc -l))
((lines == 400000)) || fail "a slow reader: $lines lines"

"${two[@]}" --grace 2 sh -c 'trap "echo usr1 $RANK" USR1; trap "" TERM; echo $$ >pid.$RANK; while :; do sleep 0.1; done' \
  >signal.log 2>&1 </dev/null &
job=$!
until [[ -s pid.0 && -s pid.1 && -s pid.2 && -s pid.3 ]]; do sleep 0.05; done
kill -USR1 "$job"
meets "USR1" signal.log '^usr1 3$'
kill -TERM "$job"
ends "TERM" "$job" 143 signal.log
gone "TERM" $(cat pid.?)
rm pid.?
"${two[@]}" sh -c 'echo $$ >pid.$RANK; exec sleep 1000' >signal.log 2>&1 </dev/null &
job=$!
until [[ -s pid.0 && -s pid.1 && -s pid.2 && -s pid.3 ]]; do sleep 0.05; done
kill -KILL "$job"
wait "$job"
gone "KILL" $(cat pid.?)

# ssh ends, and the agent behind it does not: the next one replaces it.
"$kolorun" -H node1:2,node2:2 --min-np 2 --cooldown 0.2:1 -v "$rank_program" 1000000000 >elastic.log 2>&1 </dev/null &
job=$!
meets "ssh that is killed" elastic.log '^generation 1: rank 3 of 4'
pkill -KILL -f '^ssh .* node2 '
meets "ssh that is killed" elastic.log 'host node2: ssh was ended by signal 9'
meets "ssh that is killed" elastic.log '^generation [2-9]: rank 3 of 4, commit [1-9]'
(($(pgrep -c rank_program) == 4)) || sleep 6
(($(pgrep -c rank_program) == 4)) || fail "ssh that is killed: $(pgrep -a rank_program)"
kill -TERM "$job"
ends "ssh that is killed" "$job" 143 elastic.log
conclude "kolorun by OpenSSH"
JOBS
in_root bash /kolo/inside.sh
