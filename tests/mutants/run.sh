#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants each deliberate bug of tests/mutants in a copy of the tree, builds the tests that its patch
# names, and runs them. At least one test must fail or exceed its time limit, which the table
# reports. The copy, in build/mutants, is reused.
#
# A test with several ranks runs on 3, 2 and 1 of them, until it fails.
#
# Usage: tests/mutants/run.sh [--check] [--journeys] [NAME...]
#   NAME      a patch, without .patch; default: all
#   --check   only check that the patches apply and that the tests they name exist; builds nothing
#   --journeys   only the patches that name `journeys`
#   KOLO_MUTANTS_PREFIX   a command before each build and test
#
# The test `journeys` runs random training programs until one fails, for at most ten minutes. The test
# `elastic` ends ranks of elastic trainings, 40 times.
#
# A patch changes one file, and its context must be that of the file.
set -euo pipefail
cd "$(dirname "$0")/../.."
copy=build/mutants/tree
build=build/mutants/build
logs=build/mutants/logs
seconds=300
journey_seconds=600
read -ra prefix <<<"${KOLO_MUTANTS_PREFIX:-}"

die() {
  printf 'mutate: %s\n' "$*" >&2
  exit 1
}

tests_of() { sed -n 's/^Tests: //p' "$1"; }

# The file that a patch changes, as a path in the tree.
file_of() {
  local named
  named=$(sed -n 's|^+++ b/\([^[:space:]]*\).*|\1|p' "$1")
  [[ -n $named && $named != *$'\n'* ]] || die "$1: a patch must change one file"
  [[ -e $named ]] || die "$1: there is no $named: adapt the patch"
  printf '%s\n' "$named"
}

# change PATCH DIRECTORY [OPTION...]: applies a patch to the tree in a directory.
change() {
  local file patch=$1 tree=$2
  shift 2
  file=$(file_of "$patch") || return 1
  patch --batch --fuzz=0 "$@" "$tree/$file" <"$patch"
}

check() {
  local name output
  [[ -e $1 ]] || die "there is no $1"
  output=$(change "$1" . --dry-run --forward 2>&1) ||
    die "$1 does not apply any more: adapt it to the code"$'\n'"$output"
  [[ -n $(tests_of "$1") ]] || die "$1 names no tests"
  for name in $(tests_of "$1"); do
    [[ $name != journeys && $name != elastic ]] || continue
    [[ -z $(programs_of_others "$name") ]] || continue
    grep -rqE --include=CMakeLists.txt "NAME ${name#*.} KIND ${name%%.*}( |$)" tests ||
      die "$1: there is no test $name"
  done
}

# The sources as they are here. What has not changed keeps its time, so that little is built again.
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

# The programs of tests that are registered in other ways than most.
programs_of_others() {
  case $1 in
    unit.kolorun*) echo kolorun rank_program session_program departure_program ;;
    mpi.stop.*) echo stop_program ;;
    stops.few) echo kolorun stop_trainer_program ;;
    unit.two_users) echo kolorun user_program ;;
    mpi.launcher.by_torchrun.killed_and_watched.*) echo departure_program ;;
    mpi.straggler.*) echo straggler_program ;;
    mpi.top | mpi.draw) echo kolorun kolo-diagnose straggler_program ;;
    mpi.python_*) echo kolorun kolo_python ;;
    mpi.launcher.by_torchrun.gpu_last_kernels.*) echo gpu_last_kernels_program ;;
  esac
}

# The programs of a test that is a script; nothing for a test that is a program itself.
programs_of() {
  programs_of_others "$1"
  cat tests/*/CMakeLists.txt |
    sed -n "/_script(NAME ${1#*.} KIND ${1%%.*} /,/)/p" | tr '\n' ' ' |
    sed -n 's/.* PROGRAMS \([^)]*\)).*/\1/p'
}

build_tests() {
  local targets=() programs=() name
  for name in "$@"; do
    case $name in
      journeys) targets+=(journeys_program) ;;
      elastic) targets+=(elastic_program kolorun) ;;
      *)
        read -ra programs <<<"$(programs_of "$name")"
        targets+=("${programs[@]:-$name}")
        ;;
    esac
  done
  "${prefix[@]}" cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" >"$logs/build" 2>&1
}

first_failed() { sed -n '/^\[  FAILED  \] [A-Za-z]/{s/^\[  FAILED  \] \([^ ,]*\).*/\1/p;q}' "$1"; }

# journeys SECONDS: runs programs until one fails. The verdict says when.
journeys() {
  local status=0
  "${prefix[@]}" python3 tests/journeys/run.py "$build/bin/journeys_program" --seed 1 \
    --seconds "$1" --first-failure --shrink-seconds 0 >"$logs/journeys" 2>&1 || status=$?
  verdict="journeys, $(sed -n 's/^FAILED \(after [0-9]* s\).*/\1/p;T;q' "$logs/journeys")"
  return "$status"
}

# fails_on TEST COMMAND...: the test as that command. The verdict says how it fails.
fails_on() {
  local status=0 test=$1
  shift
  GTEST_COLOR=no "${prefix[@]}" timeout "$seconds" "$@" --gtest_brief=1 >"$logs/$test" 2>&1 || status=$?
  case $status in
    124) verdict="$test, which does not end within its limit of $seconds s" ;;
    1) verdict="$test: $(first_failed "$logs/$test")" ;;
    *) verdict="$test, which ends with status $status" ;;
  esac
  ((status != 0))
}

# True if the test fails, or does not end in time; the verdict says which.
fails() {
  local ranks
  case $1 in
    journeys) ! journeys "$journey_seconds" ;;
    elastic)
      verdict="elastic, whose result is not that of a replay"
      ! "${prefix[@]}" python3 tests/elastic/campaign.py "$build/bin/kolorun" \
        "$build/bin/elastic_program" --faults 40 >"$logs/elastic" 2>&1
      ;;
    mpi.* | torch.* | stops.few | unit.kolorun* | unit.two_users)
      if [[ -n $(programs_of "$1") ]]; then
        verdict="$1, whose comparison fails"
        ! "${prefix[@]}" ctest --test-dir "$build" -R "^${1//./\\.}(\\.|\$)" >"$logs/$1" 2>&1
        return
      fi
      for ranks in 3 2 1; do
        if fails_on "$1" mpirun -np "$ranks" "$build/bin/$1"; then return 0; fi
      done
      return 1
      ;;
    *) fails_on "$1" "$build/bin/$1" ;;
  esac
}

only_check=0
only_journeys=0
while [[ ${1:-} == --* ]]; do
  case $1 in
    --check) only_check=1 ;;
    --journeys) only_journeys=1 ;;
    *) die "unknown option $1" ;;
  esac
  shift
done
patches=()
if ((only_journeys && $# == 0)); then
  mapfile -t patches < <(grep -lx 'Tests: journeys' tests/mutants/*.patch)
elif (($# == 0)); then
  patches=(tests/mutants/*.patch)
else
  for name in "$@"; do patches+=("tests/mutants/$name.patch"); done
fi

for patch in "${patches[@]}"; do check "$patch"; done
if ((only_check)); then
  printf 'Patches that apply: %d, all\n' "${#patches[@]}"
  exit 0
fi

copy_tree
torch=OFF
if grep -hq '^Tests:.*torch\.' "${patches[@]}"; then torch=ON; fi
mapfile -t all < <(for patch in "${patches[@]}"; do tests_of "$patch"; done | tr ' ' '\n' | sort -u)
# The Python that ./dev test has made, if the Python package is tested.
export KOLO_PYTHON=${KOLO_PYTHON:-$PWD/build/python/bin/python3}
cmake -G Ninja -S "$copy" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DPython_EXECUTABLE="$KOLO_PYTHON" \
  -DKOLO_WITH_TORCH=$torch -DKOLO_BUILD_EXAMPLES=OFF -DKOLO_BUILD_BENCHMARKS=OFF >"$logs/configure" 2>&1 ||
  die "see $logs/configure"
build_tests "${all[@]}" || die "see $logs/build"
for one in "${all[@]}"; do
  if [[ $one == journeys ]]; then
    journeys 60 || die "journeys fail without any mutant: see $logs/journeys"
  elif fails "$one"; then
    die "$one fails without any mutant: see $logs/$one"
  fi
done

survivors=0
printf '| mutant | what it does | found by |\n| --- | --- | --- |\n'
for patch in "${patches[@]}"; do
  name=$(basename "$patch" .patch)
  change "$patch" "$copy" --forward -s
  read -ra tests <<<"$(tests_of "$patch")"
  build_tests "${tests[@]}" || die "$name does not compile: see $logs/build"
  found=
  for one in "${tests[@]}"; do
    if fails "$one"; then
      found=$verdict
      break
    fi
  done
  change "$patch" "$copy" --reverse -s
  [[ -n $found ]] || survivors=$((survivors + 1))
  printf '| %s | %s | %s |\n' "$name" "$(head -1 "$patch")" "${found:-NOTHING}"
done
((survivors == 0)) || die "$survivors not found"
