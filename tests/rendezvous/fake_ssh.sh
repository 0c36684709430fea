#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A replacement of ssh for tests: runs the command on this host, with an environment and a directory
# of the named host. A host is down while the file down.HOST is in FAKE_SSH_DIR.
host=$1
shift
echo "$host $*" >>"$FAKE_SSH_DIR/calls"
if [ -e "$FAKE_SSH_DIR/down.$host" ]; then
  echo "ssh: connect to host $host port 22: No route to host" >&2
  exit 255
fi
cd /
exec env -i PATH="$PATH" FAKE_HOST="$host" ${ASAN_OPTIONS:+"ASAN_OPTIONS=$ASAN_OPTIONS"} sh -c "$*"
