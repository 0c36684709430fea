#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# exported_symbols.sh INCLUDE_DIR SRC_DIR LIBRARY...: the shared libraries export the names that
# headers mark with KOLO_EXPORT, and no other name of Kolo or of the libraries that it uses. Marked
# headers of src/ are those that kolo::torch, a library of its own, uses.
set -euo pipefail

include=$1
source=$2
shift 2

# All words on lines that export something, and the names of public classes.
public=$(mktemp)
trap 'rm -f "$public"' EXIT
{
  # A declaration whose name does not fit on the line has it on the next one.
  grep -rhA1 --include='*.hpp' KOLO_EXPORT "$include" "$source" |
    awk '/KOLO_EXPORT/ { print; more = !/[(]/; next } more { print; more = 0 }'
  grep -rhE --include='*.hpp' '^(class|struct) ' "$include"
} | tr -cs 'A-Za-z0-9_' '\n' | sort -u >"$public"

status=0
for library in "$@"; do
  # The name alone: without what it is (a vtable, say), parameters and attributes.
  found=$(nm -DC --defined-only "$library" | cut -d' ' -f3- |
    sed -E 's/^(typeinfo|typeinfo name|vtable|VTT|guard variable) for //
            s/operator\(\)/operator call/; s/\[abi:[^]]*\]//g; s/\(.*$//' | sort -u)
  leaks=$(awk -v list="$public" '
    BEGIN { while ((getline word <list) > 0) exported[word] = 1 }
    {
      rest = $0
      while (match(rest, /(^|[^A-Za-z0-9_])(fmt|spdlog|flatbuffers|hwy|nlohmann|kolo)::/)) {
        first = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (first !~ /kolo::$/) { print; next }
        sub(/^elastic::/, "", rest)
        sub(/^(detail|internal)::/, "", rest)
        match(rest, /^[A-Za-z0-9_]*/)
        if (!(substr(rest, 1, RLENGTH) in exported) || (rest ~ /^[a-z0-9_]+::/)) { print; next }
      }
    }' <<<"$found")
  if [[ -n $leaks ]]; then
    printf '%s exports what is not of the public face:\n%s\n' "$library" "$leaks"
    status=1
  fi
  if ! grep -q '^kolo::allreduce' <<<"$found"; then
    echo "$library does not export kolo::allreduce"
    status=1
  fi
done
exit $status
