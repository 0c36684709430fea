#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a control group of so many MiB, and checks that the kernel ended no process.
# Usage: small_memory_group.sh MIB COMMAND...
# 77: control groups cannot be made here. Version 2 gives a group no processes besides its own root's,
# so only version 1 is tried; the limits of version 2 are read from recorded files in unit.node.
set -u
groups=/sys/fs/cgroup/memory
group=$groups/kolo-test-$$
mkdir "$group" 2>/dev/null || exit 77
leave() {
  # Processes of a failed run may still end.
  echo $$ >"$groups/cgroup.procs"
  rmdir "$group" 2>/dev/null
}
trap leave EXIT
echo $(($1 << 20)) >"$group/memory.limit_in_bytes" && echo $$ >"$group/cgroup.procs" || exit 77
shift
"$@"
got=$?
killed=$(sed -n 's/^oom_kill //p' "$group/memory.oom_control")
if ((killed != 0)); then
  echo "the kernel ended $killed processes" >&2
  exit 1
fi
exit "$got"
