#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that kernel_shape.py refuses a kernel that ptxas miscompiles: one that rounds halves singly.

Exits with 77 if there is no nvcc, as kernel_shape.py does.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KERNEL = HERE.parents[1] / "src/backend/gpu/runtime/transfer.cu"
SKIPPED = 77


def main():
    single = re.sub(r"lower_bits\(__floats2half2_rn\((.*), 0\.0F\)\)",
                    r"__half_as_ushort(__float2half_rn(\1))", KERNEL.read_text())
    if single == KERNEL.read_text():
        sys.exit("kernel_shape_test: the kernel rounds no pairs: adapt this test")
    with tempfile.TemporaryDirectory() as work:
        planted = pathlib.Path(work) / "transfer.cu"
        planted.write_text(single)
        result = subprocess.run(
            [sys.executable, HERE / "kernel_shape.py", "--architectures", "90", "--kernel", planted],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(result.stdout)
    if result.returncode == SKIPPED:
        sys.exit(SKIPPED)
    if result.returncode == 0 or "F2I.U8.F16" not in result.stdout:
        sys.exit("kernel_shape_test: halves that are rounded singly were not refused")


if __name__ == "__main__":
    main()
