#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the machine code of the transfer kernel; needs no GPU.

For each architecture: accesses of 16 bytes to global memory; four of them loaded before the first
is stored; the GPU's own conversions of half types; no conversion of a half type to an integer, which
the source never contains, but which ptxas 13.0 has generated for byte stores; no spilled registers, and few enough
of them for the threads that hide the latency of memory. The loads are checked in PTX and in SASS.

Exits with 77 if there is no nvcc or ptxas. nvdisasm must be in PATH, in the CUDA toolkit or in the
virtual environment of `./dev test`; without it the check fails.
"""

import argparse
import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = "src/backend/gpu/runtime/transfer.cu"

THREADS = 256  # threads per block, as in the kernel
MIN_BLOCKS = 3  # blocks per multiprocessor, as in the kernel's launch bounds
REGISTERS = 65536  # registers per multiprocessor, since Volta
LOADED_BYTES = 64  # bytes that a thread loads before it stores
# Copies, and the twelve pairs of real types that are converted or scaled.
MIN_LOOPS = 13
ARCHITECTURES = "75,80,90,100"

WIDTHS = {"u8": 1, "s8": 1, "b8": 1, "u16": 2, "s16": 2, "b16": 2, "u32": 4, "s32": 4, "b32": 4,
          "f32": 4, "u64": 8, "s64": 8, "b64": 8, "f64": 8}


class Access:
    """A load or store, from PTX or SASS."""

    def __init__(self, kind, space, size):
        self.kind, self.space, self.size = kind, space, size


def ptx_blocks(text):
    """The accesses of each basic block; conversions by name."""
    blocks, conversions = [[]], collections.Counter()
    for line in map(str.strip, text.splitlines()):
        if re.match(r"\$?[\w$]+:$|(@!?%p\d+\s+)?(bra|brx|ret)\b", line):
            blocks.append([])
        found = re.match(r"[{\s]*(?:@!?%p\d+\s+)?(ld|st|cvt)\.([\w.]+)", line)
        if not found:
            continue
        kind, parts = found[1], found[2].split(".")
        if kind == "cvt":
            conversions[found[2]] += 1
        elif parts[0] != "param":
            count = next((int(part[1]) for part in parts if re.fullmatch(r"v[248]", part)), 1)
            space = parts[0] if parts[0] in ("global", "local", "shared", "const") else "generic"
            blocks[-1].append(Access(kind, space, count * WIDTHS[parts[-1]]))
    return blocks, conversions


def sass_blocks(text):
    blocks = [[]]
    for line in text.splitlines():
        if re.search(r"\.L_x?_?\d+:|\bBRA\b|\bEXIT\b|\bBRX\b", line):
            blocks.append([])
        found = re.search(r"\b(LDG?|STG?)\.E\b([.\w]*)", line)
        if found:
            size = re.search(r"\.(8|16|32|64|128|256|U8|S8|U16|S16)\b", found[2])
            bits = int(re.sub(r"\D", "", size[1])) if size else 32
            space = "global" if found[1].endswith("G") else "generic"
            blocks[-1].append(Access("ld" if found[1][0] == "L" else "st", space, bits // 8))
    return blocks


def loops_with_loads_in_flight(blocks):
    """The number of blocks that load `LOADED_BYTES` in accesses of 16 bytes or more before their first store."""
    loops = 0
    for block in blocks:
        loaded = 0
        for access in block:
            if access.kind == "st":
                break
            if access.size >= 16:
                loaded += access.size
        loops += loaded >= LOADED_BYTES
    return loops


def check_loads(blocks, where, complaints):
    loops = loops_with_loads_in_flight(blocks)
    if loops < MIN_LOOPS:
        complaints.append(f"{where}: {loops} loops load {LOADED_BYTES} bytes before they store; "
                          f"there were {MIN_LOOPS}")
    generic = sum(access.space == "generic" for block in blocks for access in block)
    if generic:
        complaints.append(f"{where}: {generic} accesses to generic addresses")
    return loops


def check_conversions(conversions, architecture, complaints):
    wanted = ["f32.f16"]
    # Turing has no instructions that convert pairs, or to bf16.
    wanted += ["rn.f16x2.f32", "rn.bf16x2.f32"] if architecture >= 80 else ["rn.f16.f32"]
    for name in wanted:
        if conversions[name] == 0:
            complaints.append(f"sm_{architecture}: no conversion cvt.{name}")


def check_no_integers(sass, architecture, complaints):
    found = re.findall(r"\bF2I(?:\.\w+)*\.B?F16\b[.\w]*", sass)
    if found:
        complaints.append(f"sm_{architecture}: {len(found)} conversions of half types to integers, "
                          f"such as {found[0]}: ptxas miscompiles stores of single bytes")


def find_disassembler():
    found = shutil.which("nvdisasm")
    if found:
        return found
    installed = sorted((ROOT / "build/python").glob("lib/python3*/site-packages/nvidia/*/bin/nvdisasm"))
    if not installed:
        sys.exit("kernel_shape: there is no nvdisasm: `./dev test` installs it from PyPI "
                 "(nvidia-cuda-nvdisasm)")
    return installed[-1]


def check_registers(report, architecture, complaints):
    spills = [int(count) for count in re.findall(r"(\d+) bytes spill", report)]
    if not spills or any(spills):
        complaints.append(f"sm_{architecture}: spilled bytes: {spills}")
    used = re.search(r"Used (\d+) registers", report)
    if used is None:
        complaints.append(f"sm_{architecture}: ptxas reports no registers: {report}")
        return 0
    if int(used[1]) * THREADS * MIN_BLOCKS > REGISTERS:
        complaints.append(f"sm_{architecture}: {used[1]} registers: fewer than {MIN_BLOCKS} blocks "
                          "fit onto a multiprocessor")
    return int(used[1])


def output_of(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"kernel_shape: {' '.join(map(str, command))} failed:\n{result.stdout}")
    return result.stdout


def check(architecture, kernel, disassembler, work, complaints):
    ptx, cubin = work / f"{architecture}.ptx", work / f"{architecture}.cubin"
    output_of(["nvcc", "-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-I{ROOT}/include",
               f"-I{ROOT}/src", f"-arch=compute_{architecture}", "-ptx", kernel, "-o", ptx])
    report = output_of(["ptxas", "-v", f"-arch=sm_{architecture}", ptx, "-o", cubin])
    blocks, conversions = ptx_blocks(ptx.read_text())
    loops = check_loads(blocks, f"sm_{architecture}, PTX", complaints)
    check_conversions(conversions, architecture, complaints)
    registers = check_registers(report, architecture, complaints)
    print(f"sm_{architecture}: {registers} registers, {loops} loops with {LOADED_BYTES} bytes in "
          "flight per thread")
    sass = output_of([disassembler, cubin])
    check_no_integers(sass, architecture, complaints)
    loops = check_loads(sass_blocks(sass), f"sm_{architecture}, SASS", complaints)
    print(f"sm_{architecture}: {loops} such loops in SASS")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--architectures", default=ARCHITECTURES,
                        help=f"default: {ARCHITECTURES}, all that are built")
    parser.add_argument("--kernel", default=str(ROOT / KERNEL), help="another file, for tests")
    arguments = parser.parse_args()
    for tool in ("nvcc", "ptxas"):
        if not shutil.which(tool):
            print(f"kernel_shape: skipped: there is no {tool}")
            sys.exit(SKIPPED)
    complaints = []
    disassembler = find_disassembler()
    with tempfile.TemporaryDirectory() as work:
        for architecture in map(int, arguments.architectures.split(",")):
            check(architecture, arguments.kernel, disassembler, pathlib.Path(work), complaints)
    for complaint in complaints:
        print(f"kernel_shape: {complaint}")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
