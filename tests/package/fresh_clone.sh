#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Follows the README's instructions for newcomers in a bare Debian 12, with a fresh clone of the
# last commit, and prints the seconds.
#
# Usage: tests/package/fresh_clone.sh demo|readme|test...   (as root; needs mmdebstrap and git)
#   demo     ./dev demo
#   readme   every way of the section "Install", by readme.py
#   test     ./dev test
#   KOLO_BARE_ROOT    keep the root in this folder, for a second run
#   KOLO_README_WAY   only the ways with this in their titles
set -euo pipefail
(($#)) || set -- demo readme test
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/with_bare_root.sh"
rm -rf --one-file-system "$root/root/kolo"
git clone --quiet --no-hardlinks "file://$sources" "$root/root/kolo"
git -C "$root/root/kolo" checkout --quiet -B main "$(git -C "$sources" rev-parse HEAD)"

cat >"$root/root/inside.sh" <<'INSIDE'
set -uo pipefail
TIMEFORMAT='   %R s, %U s of user and %S s of system time'
cd ~/kolo
# Puts the seconds since the start in front of the titles of ./dev.
stamp() {
  local begin=$EPOCHSECONDS line
  while IFS= read -r line; do
    [[ $line == "== "* ]] && line="[$((EPOCHSECONDS - begin)) s] $line"
    printf '%s\n' "$line"
  done
}
timed() {
  printf '\n\n==== %s, on %s cores\n' "$*" "$(nproc)"
  time "$@" 2>&1 | stamp || { echo "failed: $*"; exit 1; }
}
for what in "$@"; do
  case $what in
    demo | test) timed ./dev "$what" ;;
    readme)
      # README's commands ask, and take what is only recommended; a list that suffices needs neither.
      printf 'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n' >/etc/apt/apt.conf.d/90kolo
      # Packages for the script and FetchContent; git is there anyway for the clone.
      apt-get update -qq
      apt-get install -y -qq --no-install-recommends python3 git >/tmp/install.log 2>&1 || exit 1
      timed python3 tests/package/readme.py . ~/programs --packages ${KOLO_README_WAY:+--way "$KOLO_README_WAY"}
      ;;
    *) echo "unknown: $what"; exit 2 ;;
  esac
done
INSIDE
in_root env ${KOLO_README_WAY:+KOLO_README_WAY="$KOLO_README_WAY"} ${CMAKE_BUILD_PARALLEL_LEVEL:+CMAKE_BUILD_PARALLEL_LEVEL=$CMAKE_BUILD_PARALLEL_LEVEL} \
  bash /root/inside.sh "$@"
