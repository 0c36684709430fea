# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# python_with MODULE...: sets `python` to a Python that has these modules: KOLO_PYTHON, the one that
# ./dev test installs, or the system's. Without such a Python, the test is skipped.
python_with() {
  local root modules
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
  modules=$(IFS=,; echo "$*")
  for python in ${KOLO_PYTHON:+"$KOLO_PYTHON"} "$root/build/python/bin/python3" python3; do
    if "$python" -c "import $modules" 2>/dev/null; then return; fi
  done
  echo "skipped: no Python has the packages $modules; ./dev test installs them in build/python"
  exit 77
}
