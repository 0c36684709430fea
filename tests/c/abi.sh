#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# abi.sh SOURCE_DIR PYTHON [planted]: the headers in C have the interface of tests/c/abi.xml. `planted`: changes that
# break programs are found in copies of the headers, and `--write` refuses them; a new function is found, and written.
set -euo pipefail

source=$1
abi=("$2" -B "$1/tools/c_abi.py")
if [[ ${3:-} != planted ]]; then
  "${abi[@]}" "$source"
  exit
fi

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# differs TEXT OPTION...: tools/c_abi.py with these options says that the copy differs, with this text.
differs() {
  local status=0 text=$1
  shift
  "${abi[@]}" "$@" "$copy" >"$copy/report" 2>&1 || status=$?
  if ((status != 1)) || ! grep -qF -- "$text" "$copy/report"; then
    printf 'status %s, and not a report with "%s":\n' "$status" "$text"
    cat "$copy/report"
    exit 1
  fi
}

# plant FILE EXPRESSION: the copy with a changed header.
plant() {
  rm -rf "${copy:?}"/*
  mkdir -p "$copy/include/kolo" "$copy/tests/c"
  cp -r "$source/include/kolo/c" "$copy/include/kolo/"
  cp "$source/tests/c/abi.xml" "$copy/tests/c/"
  cp "$source/CMakeLists.txt" "$copy/"
  sed -i -E "$2" "$copy/include/kolo/c/$1"
  ! cmp -s "$source/include/kolo/c/$1" "$copy/include/kolo/c/$1" || { echo "no change: $2"; exit 1; }
}

breaks() {
  plant "$1" "$2"
  differs "$3"
  differs 'programs that are already linked may break' --write
  cmp -s "$source/tests/c/abi.xml" "$copy/tests/c/abi.xml" || { echo "written: $2"; exit 1; }
}

breaks types.h 's/^  int32_t dimensions;/  int64_t dimensions;/' "type of 'int32_t dimensions' changed"
breaks types.h 's/^  void\* data;/  size_t bytes;\n&/' 'kolo_tensor'
breaks types.h 's/KOLO_F16 = 8/KOLO_F16 = 9/; s/KOLO_BF16 = 9/KOLO_BF16 = 8/' 'kolo_dtype::KOLO_F16'
breaks session.h 's/kolo_size\(int\* size\)/kolo_size(int64_t* size)/' 'kolo_status kolo_size(int*)'
breaks session.h 's/^KOLO_C_EXPORT int kolo_initialized\(void\);//' 'kolo_initialized'

plant session.h 's/^(KOLO_C_EXPORT int )kolo_initialized(\(void\);)/&\n\1kolo_added\2/'
differs 'kolo_added'
"${abi[@]}" --write "$copy" >/dev/null
"${abi[@]}" "$copy"
