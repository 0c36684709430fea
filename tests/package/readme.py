#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the README's section "Install" line by line, and runs a program on 2 ranks.

The text before the first way has the packages to install, the CMakeLists.txt of a project, and the commands
that build and start it. Each way is a paragraph with a bold title, with commands that install Kolo, lines for
that CMakeLists.txt, or both. The program is examples/torch_training. Everything that a way has installed is
removed before the next one.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

def section(readme, title):
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", readme, re.M | re.S)
    if not found:
        raise SystemExit(f"README.md has no section '{title}'")
    return found[1]


def blocks(text):
    """The code blocks of a text: (language, lines)."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)


def ways(readme):
    """The text before the first bold title, and the texts after each title, by title."""
    parts = re.split(r"^\*\*(.+?)\*\*", section(readme, "Install"), flags=re.M)
    return parts[0], dict(zip(parts[1::2], parts[2::2]))


def run(commands, folder, sudo):
    """Runs the lines as a user would type them, in one shell that stops at the first error."""
    if not sudo:
        commands = re.sub(r"^sudo ", "", commands, flags=re.M)
    print("".join(f"  $ {line}\n" for line in commands.splitlines()), end="", flush=True)
    begin = time.monotonic()
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    print(f"    {time.monotonic() - begin:.0f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout[-6000:])
        raise SystemExit(f"ended with status {done.returncode}: {commands}")
    return done.stdout


def make_project(clone, work, title, lines):
    """Writes the example as a user's project, with these lines as its CMakeLists.txt."""
    project = work / re.sub(r"\W+", "_", title.lower())
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir(parents=True)
    shutil.copy(clone / "examples/torch_training/torch_training.cpp", project / "train.cpp")
    (project / "CMakeLists.txt").write_text(lines.replace("/path/to/kolo", str(clone)))
    if "add_subdirectory(kolo)" in lines:
        (project / "kolo").symlink_to(clone)
    return project


def remove(clone, commands, sudo):
    """Removes everything that these commands have installed, so that the next way cannot find it."""
    if "apt-get install ./build/packages" in commands:
        run("sudo apt-get remove $(for file in build/packages/*.deb; do dpkg-deb -f $file Package; done)\n", clone, sudo)
    if "cmake --install build/release" in commands:
        run("sudo xargs -d '\\n' rm -f <build/release/install_manifest.txt\n", clone, sudo)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=pathlib.Path, help="a clone of Kolo")
    parser.add_argument("work", type=pathlib.Path, help="a folder for the programs")
    parser.add_argument("--way", action="append", help="its title, or a part of it; default: all")
    parser.add_argument("--packages", action="store_true", help="install the packages that all ways need")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    parser.add_argument("--sudo", action="store_true", help="keep sudo, which root does not need")
    args = parser.parse_args()
    clone = args.clone.resolve()
    before, all_ways = ways((clone / "README.md").read_text(encoding="utf-8"))
    chosen = {title: text for title, text in all_ways.items()
              if not args.way or any(way.lower() in title.lower() for way in args.way)}
    if not chosen:
        raise SystemExit(f"README.md has only these ways: {', '.join(all_ways)}")
    if args.list:
        for title, text in chosen.items():
            print(title, *(lines for _, lines in blocks(text)), sep="\n")
        return
    packages, start = (lines for language, lines in blocks(before) if language == "sh")
    [project_lines] = (lines for language, lines in blocks(before) if language == "cmake")
    if args.packages:
        run(packages, clone, args.sudo)
    for title, text in chosen.items():
        print(f"== {title}", flush=True)
        commands = "".join(lines for language, lines in blocks(text) if language == "sh")
        lines = "".join(lines for language, lines in blocks(text) if language == "cmake")
        if commands:
            run(commands, clone, args.sudo)
        print(run(start, make_project(clone, args.work, title, project_lines + lines), True))
        remove(clone, commands, args.sudo)


if __name__ == "__main__":
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    os.environ.pop("OMPI_MCA_rmaps_base_oversubscribe", None)  # README's commands do without
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
