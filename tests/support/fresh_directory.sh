# To be sourced by scripts of tests.

# fresh_directory DIRECTORY: makes it, or empties it. It must have the name of a test: who mixes up
# arguments shall not lose anything else.
fresh_directory() {
  [[ $1 =~ ^/.*\.np[0-9]+$ ]] || {
    printf 'not the directory of a test: %s\n' "$1" >&2
    return 2
  }
  rm -rf "$1"
  mkdir -p "$1"
}
