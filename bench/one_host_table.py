#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Combines runs of one_host.sh into one table, as CSV for docs/measurements/one_host.csv.

Usage: one_host_table.py RUN...
Comments in the table name the commit and the machine, so call the script on the machine and at the commit of the runs.
"""
import csv
import os
import re
import subprocess
import sys

UNITS = [(1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]


def size(count):
    unit, name = next((unit, name) for unit, name in UNITS if count >= unit)
    return f"{count // unit} {name}"


def microseconds(text):
    value = float(text)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def rows(path):
    """Reads a run. Yields what was measured, and the figures. `message_ns` is the longer of the times before and after."""
    header, tuned, before, block = [], False, None, []
    for fields in csv.reader(open(path)):
        if fields and fields[0].startswith("# message"):
            message = int(fields[0].split()[-1])
            if before is None:
                before = message
                continue
            for key, row in block:
                yield key, row | {"message_ns": max(before, message)}
            before, block = None, []
        elif fields and fields[0].startswith("#"):
            tuned = "tuned" in fields[0]
        elif fields and fields[0] == "mode":
            header = fields
        elif fields:
            row = dict(zip(header, fields))
            if row["mode"] == "idle":
                block.append(((row["ranks"], "idle, rank " + row["rank"], "", ""), row))
            else:
                what = row["gradients"] or "allreduce, " + size(int(row["bytes"]))
                if row["mode"] == "from-sleep":
                    what += ", from sleep"
                path = row["path"].removeprefix("shm-")
                block.append(((row["ranks"], what, path, "tuned" if tuned else "default"), row))


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def comments():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return [
        "kolo-perf on one host, beside MPI: medians of the slowest rank in microseconds, and MPI over Kolo.",
        "Command: bench/one_host.sh kolo-perf >RUN, some times; bench/one_host_table.py RUN...",
        f"Recorded at commit {output_of('git', 'rev-parse', '--short', 'HEAD')}.",
        f"Machine: {os.cpu_count()} cores ({model[1] if model else 'unknown'}), {output_of('uname', '-sr')}, "
        f"{output_of('mpirun', '--version').splitlines()[0]}.",
    ]


def main():
    print("\n".join("# " + line for line in comments()))
    runs = [dict(rows(path)) for path in sys.argv[1:]]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["ranks", "what", "path", "mpi", "run", "kolo_us", "kolo_p90_us", "mpi_us", "ratio", "message_ns"])
    for key in (key for key in runs[0] if key[2]):
        for number, run in enumerate(runs, 1):
            row = run[key]
            out.writerow([*key, number, *(microseconds(row[name]) for name in ("kolo_us", "kolo_p90_us", "mpi_us")),
                          f"{float(row['ratio']):.2f}", row["message_ns"]])
    wrong = sum(int(r["kolo_wrong"]) for run in runs for r in run.values() if "kolo_wrong" in r)
    print(f"Elements that were wrong: {wrong}.", file=sys.stderr)
    for ranks in ("2", "4"):
        idle = [float(r["cpu_percent"]) for run in runs for key, r in run.items()
                if not key[2] and key[0] == ranks]
        print(f"idle.csv: {ranks},{min(idle):.2f},{max(idle):.2f}", file=sys.stderr)


main()
