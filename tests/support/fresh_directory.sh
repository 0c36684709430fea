# SPDX-License-Identifier: Apache-2.0
# Source this file in test scripts.

# fresh_directory DIRECTORY: creates or empties it. The name must be that of a test, so that swapped
# arguments delete nothing else.
fresh_directory() {
  [[ $1 =~ ^/.*\.np[0-9]+$ ]] || {
    printf 'not the directory of a test: %s\n' "$1" >&2
    return 2
  }
  rm -rf "$1"
  mkdir -p "$1"
}
