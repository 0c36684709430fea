#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Markdown of some runs of one_host.sh, side by side: one_host_table.py RUN..."""
import csv
import sys

UNITS = [(1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]


def size(count):
    unit, name = next((unit, name) for unit, name in UNITS if count >= unit)
    return f"{count // unit} {name}"


def microseconds(text):
    value = float(text)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def rows(path):
    """Of a run: what was measured, and the figures."""
    header, tuned = [], False
    for fields in csv.reader(open(path)):
        if fields and fields[0].startswith("#"):
            tuned = "tuned" in fields[0]
        elif fields and fields[0] == "mode":
            header = fields
        elif fields:
            row = dict(zip(header, fields))
            if row["mode"] == "idle":
                yield (row["ranks"], "idle, rank " + row["rank"], "", ""), row
            else:
                what = row["gradients"] or "allreduce, " + size(int(row["bytes"]))
                if row["mode"] == "from-sleep":
                    what += ", from sleep"
                path = row["path"].removeprefix("shm-")
                yield (row["ranks"], what, path, "tuned" if tuned else "default"), row


def main():
    runs = [dict(rows(path)) for path in sys.argv[1:]]
    timed = [key for key in runs[0] if key[2]]
    print("| np | what | path | MPI | Kolo, µs: median (p90) | MPI, µs: median | MPI over Kolo |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for key in timed:
        of_runs = [run[key] for run in runs]
        kolo = "; ".join(
            f"{microseconds(r['kolo_us'])} ({microseconds(r['kolo_p90_us'])})" for r in of_runs)
        mpi = "; ".join(microseconds(r["mpi_us"]) for r in of_runs)
        ratio = "; ".join(f"{float(r['ratio']):.2f}" for r in of_runs)
        print("| " + " | ".join([*key, kolo, mpi, ratio]) + " |")
    wrong = sum(int(r["kolo_wrong"]) for run in runs for r in run.values() if "kolo_wrong" in r)
    print(f"\nElements that were wrong: {wrong}.")
    for ranks in ("2", "4"):
        idle = [float(r["cpu_percent"]) for run in runs for key, r in run.items()
                if not key[2] and key[0] == ranks]
        print(f"Idle, np={ranks}: {min(idle):.2f} to {max(idle):.2f} % of a core.")


main()
