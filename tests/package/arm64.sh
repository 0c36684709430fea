#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles Kolo without LibTorch for ARM64 in a bare Debian 12, with Debian's cross compiler, and
# runs the tests without MPI under QEMU. QEMU translates the program for this processor, whose
# memory order is stronger. So the tests find code that does not compile or computes wrong results,
# but not a missing memory order.
#
# Usage: tests/package/arm64.sh [REGEX]   (as root; needs mmdebstrap and git)
#   REGEX   only the tests whose names match
#   KOLO_BARE_ROOT             keep the root in this folder, for a second run
#   CMAKE_BUILD_PARALLEL_LEVEL number of compilations at the same time
set -euo pipefail
# shellcheck source=tests/package/with_bare_root.sh
source "$(dirname "$0")/with_bare_root.sh"
mkdir -p "$root/kolo"
# The files of the working tree; those that have not changed keep their times, so that a second run is short.
find "$root/kolo" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf --one-file-system {} +
git -C "$sources" ls-files -z --cached --others --exclude-standard |
  (cd "$sources" && while IFS= read -r -d '' file; do [[ ! -e $file ]] || printf '%s\0' "$file"; done) |
  tar -C "$sources" --null --files-from=- -c | tar -C "$root/kolo" -x

cat >"$root/root/arm64.cmake" <<'TOOLCHAIN'
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# ctest runs programs by it.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Open MPI's compiler of this architecture is a program of the other one.
set(MPI_CXX_COMPILER MPI_CXX_COMPILER-NOTFOUND)
set(MPI_CXX_HEADER_DIR /usr/lib/aarch64-linux-gnu/openmpi/include)
set(MPI_CXX_SKIP_MPICXX ON CACHE BOOL "")
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY /usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so)
TOOLCHAIN

cat >"$root/root/inside.sh" <<'INSIDE'
set -euo pipefail
say() { printf '\n== %s\n' "$*"; }
say "Packages"
dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
packages=(crossbuild-essential-arm64 cmake ninja-build ccache flatbuffers-compiler qemu-user pkg-config nlohmann-json3-dev
  libcli11-dev libopenmpi-dev:arm64 libflatbuffers-dev:arm64 libspdlog-dev:arm64 libfmt-dev:arm64
  libhwy-dev:arm64 zlib1g-dev:arm64 libhwloc-dev:arm64 libsodium-dev:arm64
  libgtest-dev:arm64 libgmock-dev:arm64)
if ! dpkg-query -W "${packages[@]}" >/dev/null 2>&1; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/root/packages.log 2>&1 ||
    { tail -n 20 /root/packages.log; exit 1; }
fi
say "Configuring for $(aarch64-linux-gnu-g++ -dumpmachine)"
cd /kolo
cmake --preset ci -B build -DCMAKE_TOOLCHAIN_FILE=/root/arm64.cmake -DKOLO_WITH_TORCH=OFF -DKOLO_WITH_CUDA=OFF \
  -DKOLO_BUILD_EXAMPLES=OFF -DKOLO_BUILD_BENCHMARKS=OFF -DKOLO_BUILD_TOOLS=OFF
say "Building"
cmake --build build --target kolo_tests_unit
say "Testing under $(qemu-aarch64 --version | head -n 1)"
# The first forks while another thread allocates: under QEMU, which has locks of its own, the child may wait forever.
# The second limits the address space, which QEMU ignores.
not_under_qemu=SharedHeap.AForkedChildDoesNotWaitForALockOfItsParent
not_under_qemu+=:MemoryLimitsTest.TheAddressSpaceIsWhatIsLeftOfItsLimit
export GTEST_FILTER=-$not_under_qemu
ctest --test-dir build --label-regex '^unit$' --timeout 900 --output-on-failure ${1:+--tests-regex "$1"}
# Highway has a version of its own for each of these lengths.
for bytes in 16 32; do
  say "Arithmetic with SVE vectors of $bytes bytes"
  QEMU_CPU=max,sve-default-vector-length=$bytes \
    ctest --test-dir build --tests-regex '^unit\.(base|fusion|reduction|training)$' --timeout 900 --output-on-failure
done
INSIDE
in_root env ${CMAKE_BUILD_PARALLEL_LEVEL:+CMAKE_BUILD_PARALLEL_LEVEL="$CMAKE_BUILD_PARALLEL_LEVEL"} \
  bash /root/inside.sh "$@"
