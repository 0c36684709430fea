#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a control group of MIB MiB, and checks that the kernel killed no process.
# Usage: small_memory_group.sh MIB COMMAND...
# Exits with 77 if control groups cannot be created here. In version 2, only the root of a group can
# move processes into it, so only version 1 is tried; unit.node reads the limits of version 2 from
# recorded files.
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
