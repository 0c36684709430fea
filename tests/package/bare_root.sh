#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a bare Debian 12 installation, with devices, processes, mounts and a host name of
# its own: all of them are gone when the command ends.
#
# Usage: tests/package/bare_root.sh ROOT COMMAND...   (as root; needs mmdebstrap)
#   ROOT   the folder of the installation, which is made if there is none
#   KOLO_DEBIAN_SOURCES   what mmdebstrap installs from
set -euo pipefail
[[ $# -ge 2 ]] || {
  sed -n '3,8s/^# \?//p' "$0" >&2
  exit 2
}

if [[ $1 != --inside ]]; then
  ((EUID == 0)) || {
    echo "bare_root.sh: must run as root" >&2
    exit 1
  }
  mkdir -p "$1"
  root=$(cd "$1" && pwd)
  if [[ ! -e $root/etc/debian_version ]]; then
    printf '\n== A bare Debian 12 in %s\n' "$root"
    mmdebstrap --quiet --variant=apt --include=ca-certificates bookworm "$root" \
      ${KOLO_DEBIAN_SOURCES:+"$KOLO_DEBIAN_SOURCES"}
  fi
  cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
  printf '127.0.0.1 localhost bare\n' >"$root/etc/hosts"
  exec unshare --mount --pid --uts --ipc --fork --kill-child "$0" --inside "$root" "${@:2}"
fi

root=$2
hostname bare
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
# Devices of its own: those of this host must not be in reach.
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom; do cp -a "/dev/$device" "$root/dev/"; done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 "${@:3}"
