#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the binary interface of include/kolo/c with its description, tests/c/abi.xml: structs, enumerations,
functions and their parameters. abidw and abidiff of libabigail do the work.

The description is made from the headers alone: a library of empty functions with the declared types is compiled with
debug information. So neither the build of Kolo nor its options matter. A function of Kolo has the declared types
because its source includes the header, and the test package.c_symbols compares the names.

Usage: c_abi.py [--write [--incompatible]] [ROOT]
  --write         write the description. Programs that are already linked must run with the new interface: if more has
                  changed than that there are new functions, this is refused
  --incompatible  write it all the same. docs/compatibility.md says which changes are allowed
  ROOT            the repository; default: this one

Exit status: 0 if both are equal or the description is written, 1 if they differ, 2 if this cannot be found out.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DESCRIPTION = "tests/c/abi.xml"
DIFFERS = 4  # a bit of abidiff's status
DECLARATION = re.compile(r"^KOLO_C_EXPORT [^;{]*?\)(?=;)", re.MULTILINE)


def fail(message):
    print(f"c_abi: {message}", file=sys.stderr)
    sys.exit(2)


def run(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        fail(f"there is no {command[0]}; abidw and abidiff are in Debian's package abigail-tools")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, command))}:\n{error.stdout}{error.stderr}")
    return ""


def version_of(root):
    """The version in the library's file name, within which programs keep running."""
    found = re.search(r"project\(kolo VERSION (\d+)\.(\d+)", (root / "CMakeLists.txt").read_text())
    if not found:
        fail("CMakeLists.txt has no version")
    return found[1] if found[1] != "0" else f"0.{found[2]}"


def describe(root, folder):
    """Writes the description of the headers of `root` into `folder`, and returns its path."""
    source, library, description = folder / "c.c", folder / "libkolo.so", folder / "abi.xml"
    functions = []
    for header in sorted((root / "include/kolo/c").glob("*.h")):
        functions += DECLARATION.findall(header.read_text())
    if not functions:
        fail(f"{root}/include/kolo/c declares no functions")
    source.write_text("#include <kolo/c/kolo.h>\n" + "".join(f"{each} {{ __builtin_trap(); }}\n" for each in functions))
    run(os.environ.get("CC", "cc"), "-std=c99", "-g", "-gdwarf-4", "-O0", "-fPIC", "-shared", "-w", "-nostdlib",
        f"-I{root}/include", f"-Wl,-soname,libkolo.so.{version_of(root)}", "-o", library, source)
    run("abidw", "--no-architecture", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs",
        "--no-parameter-names", "--no-elf-needed", "--out-file", description, library)
    return description


def compare(stored, found, *options):
    """abidiff's status, and its report."""
    result = subprocess.run(["abidiff", *options, stored, found], check=False, capture_output=True, text=True)
    if result.returncode & ~(DIFFERS | 8):
        fail(f"abidiff: {result.stdout}{result.stderr}")
    return result.returncode, result.stdout


def main():
    arguments = sys.argv[1:]
    options = [each for each in arguments if each.startswith("--")]
    roots = [each for each in arguments if not each.startswith("--")]
    if set(options) - {"--write", "--incompatible"} or len(roots) > 1 or options == ["--incompatible"]:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    root = Path(roots[0]) if roots else Path(__file__).resolve().parent.parent
    stored = root / DESCRIPTION
    with tempfile.TemporaryDirectory() as folder:
        found = describe(root, Path(folder))
        status, report = compare(stored, found, "--harmless") if stored.exists() else (DIFFERS, "")
        if status == 0:
            print(f"The headers of {root.name}/include/kolo/c have the interface of {DESCRIPTION}.")
            return 0
        print(report, end="")
        only_adds = not stored.exists() or compare(stored, found, "--harmless", "--no-added-syms")[0] == 0
        if "--write" not in options:
            print(f"The interface is not that of {DESCRIPTION}. docs/compatibility.md says which changes are "
                  "allowed: write it with ./dev abi --write")
            return 1
        if not only_adds and "--incompatible" not in options:
            print("Not only new functions: programs that are already linked may break. "
                  "If docs/compatibility.md allows it: ./dev abi --write --incompatible")
            return 1
        stored.write_bytes(found.read_bytes())
        print(f"{DESCRIPTION} is written.")
        return 0


if __name__ == "__main__":
    sys.exit(main())
