# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Source this file in scripts: it creates a bare Debian 12 in the folder `root`, for the sources in
# `sources`. `in_root COMMAND...` runs a command there, with bare_root.sh; `packages_of PROGRAM...`
# prints the Debian packages of the libraries that programs need.
#
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run; otherwise the script removes it
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
root=${KOLO_BARE_ROOT:-}
[[ -n $root ]] || {
  root=$(mktemp -d "/var/tmp/kolo-$(basename "$0" .sh).XXXXXX")
  # Nothing is mounted there: bare_root.sh mounts in a namespace of its own.
  trap 'rm -rf --one-file-system "$root"' EXIT
}
in_root() { "$sources/tests/package/bare_root.sh" "$root" "$@"; }
packages_of() {
  ldd "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u | xargs -n 1 realpath | sed 's|^/usr||' |
    while read -r library; do dpkg -S "*$library" 2>/dev/null || true; done | cut -d : -f 1 | sort -u
}
in_root true
