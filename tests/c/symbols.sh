#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh SOURCE_DIR LIBRARY VERSION: the shared library exports the C functions of src/c/symbols.txt with their
# versions, the headers declare them, and names of C++ have the minor version of the library. A line that goes or gets
# another version breaks programs that are already linked.
set -euo pipefail

list=$1/src/c/symbols.txt
names=$(nm -D --defined-only "$2" | awk '{ print $3 }')
exported=$(sed -n 's/^\(kolo_[a-z_]*\)@@KOLO_/\1 /p; /^kolo_[a-z_]*$/p' <<<"$names" | LC_ALL=C sort)
declared=$(grep -hoE '\bkolo_[a-z_]+\(' "$1"/include/kolo/c/*.h | grep -v 'kolo_allocator(' |
  tr -d '(' | LC_ALL=C sort -u)
status=0
diff -u --label "src/c/symbols.txt" "$list" --label "exported by $2" - <<<"$exported" || status=1
diff -u --label "src/c/symbols.txt" <(cut -d' ' -f1 "$list") --label "declared in include/kolo/c" - \
  <<<"$declared" || status=1
others=$(grep '^_Z.*4kolo' <<<"$names" | grep -v "@@KOLOCXX_${3%.*}\$" | head -n 5) || true
if [[ -n $others || $names != *_ZN4kolo* ]]; then
  printf 'not of version %s:\n%s\n' "${3%.*}" "$others"
  status=1
fi
exit $status
