#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests Kolo's Debian packages: runs lintian, then in a bare Debian 12 root installation a program
# on 2 ranks, built with find_package and with pkg-config, then the packaged programs, and removal,
# which must leave nothing.
#
# Usage: tests/package/debian.sh DIRECTORY   (as root; needs lintian and mmdebstrap)
#   DIRECTORY        folder of the packages
#   KOLO_BARE_ROOT   keep the root in this folder, for a second run
set -euo pipefail
packages=$(cd "$1" && pwd)

say() { printf '\n== %s\n' "$*"; }
die() {
  printf 'debian.sh: %s\n' "$*" >&2
  exit 1
}

((EUID == 0)) || die "must run as root"
for program in lintian mmdebstrap; do
  command -v "$program" >/dev/null || die "$program is missing: apt-get install $program"
done

say "lintian"
lintian --fail-on error --tag-display-limit 0 "$packages"/*.deb

# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/with_bare_root.sh"
mkdir -p "$root/kolo"
rm -rf "$root/kolo"/*
cp "$packages"/*.deb "$root/kolo/"
cp -r "$sources/examples" "$sources/tests/package/consumer" "$root/kolo/"

cat >"$root/kolo/inside.sh" <<'INSIDE'
set -euo pipefail
export OMP_NUM_THREADS=1
say() { printf '\n== %s\n' "$*"; }
cd /kolo
names=(libkolo0.1 libkolo-torch0.1 libkolo-dev libkolo-torch-dev kolo-tools)
apt-get update -qq
say "Installation of the libraries alone"
apt-get install -y -qq --no-install-recommends ./libkolo0.1_*.deb >install.log 2>&1 || { cat install.log; exit 1; }
for file in $(dpkg -L libkolo0.1 | grep 'so\.0'); do
  if ldd "$file" | grep 'not found'; then exit 1; fi
done
say "Installation of all packages, and of what programs need"
apt-get install -y -qq --no-install-recommends ./*.deb g++ make cmake pkg-config libopenmpi-dev openmpi-bin \
  libopenblas0-pthread >install.log 2>&1 || { cat install.log; exit 1; }
dpkg -L "${names[@]}" | sort -u | while read -r path; do [[ -d $path ]] || echo "$path"; done >files
wc -l <files
say "find_package"
mkdir -p tests/package && cp -r consumer tests/package/
cmake -S tests/package/consumer -B build -DWITH_TORCH=ON -DCMAKE_BUILD_TYPE=Release >build.log
cmake --build build >>build.log
for program in consumer quickstart custom_trainer torch_training; do
  mpirun -np 2 "build/$program" >run.log 2>&1 || { cat run.log; exit 1; }
  echo "$program: $(tail -n 1 run.log)"
done
say "pkg-config"
g++ -std=c++20 -O1 examples/basics/quickstart.cpp $(pkg-config --cflags --libs kolo) -o by_pkg_config
mpirun -np 2 ./by_pkg_config
g++ -std=c++20 -O1 examples/torch_training/torch_training.cpp $(pkg-config --cflags --libs kolo-torch) \
  -o torch_by_pkg_config
mpirun -np 2 ./torch_by_pkg_config
say "Programs"
mpirun -np 2 kolo-perf --sizes 4,64K --iterations 2
kolorun -np 2 sh -c 'echo "rank $RANK of $WORLD_SIZE"'
kolo-diagnose --version
say "Removal"
dpkg -r "${names[@]}" >/dev/null
while read -r path; do
  if [[ -e $path ]]; then
    echo "left: $path"
    exit 1
  fi
done <files
for folder in /usr/include/kolo /usr/share/doc/libkolo-dev /usr/lib/*/cmake/kolo; do
  if [[ -e $folder ]]; then
    echo "left: $folder"
    exit 1
  fi
done
echo "nothing is left"
INSIDE
in_root bash /kolo/inside.sh
