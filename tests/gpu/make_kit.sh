#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a folder with all that tests/gpu/check.sh needs on a machine that has a GPU, CUDA, CMake,
# Ninja and g++, but neither Open MPI nor the packages that Kolo is built from, nor a network.
#
# Usage: make_kit.sh DIR MPI
#   MPI: a relocatable Open MPI with bin/mpicxx, bin/mpirun and env.sh, for x86-64
# Needs a Debian 12 after `apt-get update`; no root. About 26 MB.
set -euo pipefail

packages=(
  flatbuffers-compiler libflatbuffers-dev libflatbuffers2
  libfmt-dev libfmt9 libspdlog-dev libspdlog1.10 libhwy-dev libhwy1
  libcli11-dev nlohmann-json3-dev zlib1g-dev libgtest-dev libgmock-dev
)

if (($# != 2)); then
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
fi
kit=$(realpath -m "$1")
mpi=$(realpath "$2")
for file in bin/mpicxx bin/mpirun env.sh; do
  [[ -e $mpi/$file ]] || { printf 'make_kit.sh: there is no %s in %s\n' "$file" "$mpi" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}")
rm -rf "$kit"
mkdir -p "$kit"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$kit"; done
rm -rf "$kit"/usr/share/{doc,man,lintian,bug}
# It points to Debian's own; the archive beside it does.
rm "$kit"/usr/lib/x86_64-linux-gnu/libz.so
cp -a "$mpi" "$kit/mpi"
du -sh "$kit"
