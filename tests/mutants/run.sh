#!/usr/bin/env bash
# Plants each deliberate bug of tests/mutants in a copy of the tree, builds the tests that its patch
# names, and runs them: at least one must fail, or not end within the time that it has, which the
# table says then. The copy, in build/mutants, is used again.
#
# Usage: tests/mutants/run.sh [NAME...]     names of patches, without .patch; default: all
#   KOLO_MUTANTS_PREFIX   a command before each build and test
set -euo pipefail
cd "$(dirname "$0")/../.."
copy=build/mutants/tree
build=build/mutants/build
logs=build/mutants/logs
seconds=300
read -ra prefix <<<"${KOLO_MUTANTS_PREFIX:-}"

die() {
  printf 'mutate: %s\n' "$*" >&2
  exit 1
}

# The sources as they are here; what has not changed keeps its time, so that little is built again.
copy_tree() {
  mkdir -p "$copy" "$logs"
  git ls-files --cached --others --exclude-standard |
    while read -r file; do [[ ! -e $file ]] || printf '%s\n' "$file"; done >build/mutants/files
  while read -r file; do
    cmp -s "$file" "$copy/$file" && continue
    mkdir -p "$copy/$(dirname "$file")"
    cp "$file" "$copy/$file"
  done <build/mutants/files
}

tests_of() { sed -n 's/^Tests: //p' "$1"; }

build_tests() { "${prefix[@]}" cmake --build "$build" -j "$(nproc)" --target "$@" >"$logs/build" 2>&1; }

first_failed() { sed -n '/^\[  FAILED  \] [A-Za-z]/{s/^\[  FAILED  \] \([^ ,]*\).*/\1/p;q}' "$1"; }

# True if the test fails, or does not end in time; what happened is the verdict.
fails() {
  local status=0
  "${prefix[@]}" timeout "$seconds" "$build/bin/$1" --gtest_brief=1 >"$logs/$1" 2>&1 || status=$?
  case $status in
    124) verdict="$1, which does not end within the $seconds s that it has" ;;
    1) verdict="$1: $(first_failed "$logs/$1")" ;;
    *) verdict="$1, which ends with status $status" ;;
  esac
  ((status != 0))
}

patches=()
if (($# == 0)); then
  patches=(tests/mutants/*.patch)
else
  for name in "$@"; do patches+=("tests/mutants/$name.patch"); done
fi

copy_tree
for patch in "${patches[@]}"; do
  [[ -e $patch ]] || die "there is no $patch"
  patch --dry-run --batch --forward -p1 -d "$copy" <"$patch" >/dev/null ||
    die "$patch does not apply any more: adapt it"
done

mapfile -t all < <(for patch in "${patches[@]}"; do tests_of "$patch"; done | tr ' ' '\n' | sort -u)
cmake -G Ninja -S "$copy" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DKOLO_WITH_TORCH=OFF -DKOLO_BUILD_EXAMPLES=OFF -DKOLO_BUILD_BENCHMARKS=OFF >"$logs/configure" 2>&1 ||
  die "see $logs/configure"
build_tests "${all[@]}" || die "see $logs/build"
for one in "${all[@]}"; do
  if fails "$one"; then die "$one fails without any mutant: see $logs/$one"; fi
done

survivors=0
printf '| mutant | what it does | found by |\n| --- | --- | --- |\n'
for patch in "${patches[@]}"; do
  name=$(basename "$patch" .patch)
  patch --batch --forward -s -p1 -d "$copy" <"$patch"
  read -ra tests <<<"$(tests_of "$patch")"
  build_tests "${tests[@]}" || die "$name does not compile: see $logs/build"
  found=
  for one in "${tests[@]}"; do
    if fails "$one"; then
      found=$verdict
      break
    fi
  done
  patch --batch --reverse -s -p1 -d "$copy" <"$patch"
  [[ -n $found ]] || survivors=$((survivors + 1))
  printf '| %s | %s | %s |\n' "$name" "$(head -1 "$patch")" "${found:-NOTHING}"
done
((survivors == 0)) || die "$survivors not found"
