#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh SOURCE_DIR LIBRARY: the shared library exports the C functions of src/c/symbols.txt,
# and the headers declare them. A line that goes breaks programs that are already linked.
set -euo pipefail

list=$1/src/c/symbols.txt
exported=$(nm -D --defined-only "$2" | awk '$3 ~ /^kolo_/ { print $3 }' | LC_ALL=C sort)
declared=$(grep -hoE '\bkolo_[a-z_]+\(' "$1"/include/kolo/c/*.h | grep -v 'kolo_allocator(' |
  tr -d '(' | LC_ALL=C sort -u)
status=0
diff -u --label "src/c/symbols.txt" "$list" --label "exported by $2" - <<<"$exported" || status=1
diff -u --label "src/c/symbols.txt" "$list" --label "declared in include/kolo/c" - <<<"$declared" ||
  status=1
exit $status
