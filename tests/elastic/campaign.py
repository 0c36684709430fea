#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains elastically again and again, with other faults each time, and judges.

Usage: campaign.py KOLORUN PROGRAM [--torch PROGRAM] [--faults N] [--seed S] [--csv FOLDER] [--keep FOLDER]

Every run follows from its seed: plans.py draws it. A run must end with status 0 and the words "as replayed": its
parameters equal those of a replay of its steps in one process. No process and no shared memory of it may be left.
Prints how many faults there were of each kind in each phase, and how long it took from a fault to the end of the next
step; --csv writes this to elastic_faults.csv and elastic_runs.csv. Exit status 1 if a run failed. The output of failed
runs is kept in --keep. Runs on two networks need root, and are left out otherwise.
"""
import argparse
import collections
import csv
import os
import re
import signal
import statistics
import sys
import tempfile
import time

from jobs import Job, describe
from networks import make_networks
from plans import PHASES, draw_plan

PATIENCE = 90  # seconds
KINDS = ["kill", "stop", "pause", "exit", "throw", "leave", "host", "hoststop", "cut"]
RECOVERED = re.compile(r"^next step ([0-9.]+) ms after fault ([0-9]+)$", re.MULTILINE)
FAULT_FIELDS = ["fault", "phase", "faults", "hangs", "wrong", "left", "recovered", "median_ms", "max_ms"]
RUN_FIELDS = ["hosts", "optimizer", "runs", "faults", "hangs", "wrong", "left"]


class Helper:
    """For faults that end: cuts the cable once a process waits for that, and mends it; continues stopped processes."""

    def __init__(self, networks, job, folder, plan):
        self.networks, self.job, self.folder, self.plan = networks, job, folder, plan
        self.begun = {}  # when

    def act(self):
        now = time.monotonic()
        for i, fault in enumerate(self.plan.faults):
            kind = fault.split(":")[0]
            path = f"{self.folder}/fault.{i}"
            if kind not in ("cut", "pause") or not os.path.exists(path):
                continue
            if i not in self.begun:
                self.begun[i] = now
                if kind == "cut":
                    self.networks.set_cable("down")
                    open(f"{path}.done", "w").close()
            elif now >= self.begun[i] + self.plan.lasts:
                self.begun[i] = float("inf")
                self.undo(kind)

    def undo(self, kind):
        if kind == "cut":
            self.networks.set_cable("up")
            return
        for process in self.job.processes():
            if process.is_stopped():
                os.kill(process.pid, signal.SIGCONT)

    def end(self):
        if any(self.plan.faults[i].startswith("cut:") and at < float("inf") for i, at in self.begun.items()):
            self.undo("cut")


class Run:
    def __init__(self, args, plan, networks):
        self.plan = plan
        program = args.torch if plan.optimizer.startswith("torch") else args.program
        with tempfile.TemporaryDirectory(prefix="kolo-elastic-") as folder:
            self.command = [args.kolorun, *plan.launch, program, folder, *plan.options,
                            *(f"fault={each}" for each in plan.faults)]
            on_networks = plan.hosts == "networks"
            job = Job(self.command, plan.environment, folder, networks.on_first() if on_networks else (),
                      networks.on_second() if on_networks else ())
            helper = Helper(networks, job, folder, plan)
            until = time.monotonic() + PATIENCE
            try:
                while job.process.poll() is None and time.monotonic() < until:
                    helper.act()
                    time.sleep(0.005)
                self.status = job.process.poll()
                self.hangs = self.status is None
                self.left = [] if self.hangs else job.left()
                waiting = [describe(each) for each in job.processes()] if self.hangs else []
            finally:
                job.end()
                helper.end()
            self.output = job.output() + "".join(f"waits: {each}\n" for each in waiting)
            self.happened = [tuple(each.split(":")[:2]) for i, each in enumerate(plan.faults)
                             if os.path.exists(f"{folder}/fault.{i}")]
            self.times = [(tuple(plan.faults[int(i)].split(":")[:2]), float(ms))
                          for ms, i in RECOVERED.findall(self.output)]
        self.wrong = not self.hangs and (self.status != 0 or "as replayed" not in self.output)
        self.good = not (self.hangs or self.wrong or self.left)

    def waits(self):
        """Are there faults that others learn of only after a timeout?"""
        return any(kind in ("stop", "pause", "hoststop", "cut") or phase in ("start", "startup")
                   for kind, phase in self.happened)

    def describe(self):
        what = "hangs" if self.hangs else f"status {self.status}"
        more = " ".join(f"{name}={value}" for name, value in self.plan.environment.items())
        times = ", ".join(f"{'/'.join(fault)} {ms:.0f} ms" for fault, ms in self.times)
        return (f"seed {self.plan.seed}: {what}: {times or 'no next step'}; {self.plan.hosts}, "
                f"{self.plan.lasts:.1f} s: {more} {' '.join(self.command)}")


def fault_rows(runs):
    rows = []
    for kind in KINDS:
        for phase in PHASES:
            own = [(run, fault) for run in runs for fault in run.happened if fault == (kind, phase)]
            times = [ms for run in runs for fault, ms in run.times if fault == (kind, phase)]
            if own:
                rows.append([kind, phase, len(own), sum(run.hangs for run, _ in own), sum(run.wrong for run, _ in own),
                             sum(bool(run.left) for run, _ in own), len(times),
                             f"{statistics.median(times):.0f}" if times else "", f"{max(times):.0f}" if times else ""])
    return rows


def run_rows(runs):
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run.plan.hosts, run.plan.optimizer].append(run)
    return [[*key, len(own), sum(len(run.happened) for run in own), sum(run.hangs for run in own),
             sum(run.wrong for run in own), sum(bool(run.left) for run in own)] for key, own in sorted(groups.items())]


def write(folder, name, fields, rows):
    """The comments of the file stay."""
    path = f"{folder}/{name}"
    comments = []
    if os.path.exists(path):
        with open(path) as file:
            comments = [line for line in file if line.startswith("#")]
    with open(path, "w", newline="") as file:
        file.writelines(comments)
        csv.writer(file, lineterminator="\n").writerows([fields, *rows])


def report(args, runs):
    for fields, rows in ((FAULT_FIELDS, fault_rows(runs)), (RUN_FIELDS, run_rows(runs))):
        print("| " + " | ".join(fields) + " |\n|" + " --- |" * len(fields))
        for row in rows:
            print("| " + " | ".join(map(str, row)) + " |")
        print()
    if args.csv:
        write(args.csv, "elastic_faults.csv", FAULT_FIELDS, fault_rows(runs))
        write(args.csv, "elastic_runs.csv", RUN_FIELDS, run_rows(runs))
    prompt = sorted(ms for run in runs if not run.waits() for _, ms in run.times)
    print(f"{len(runs)} runs, {sum(len(run.happened) for run in runs)} faults")
    if prompt:
        print(f"after {len(prompt)} faults of runs in which nobody waits for a timeout, the next step was done within "
              f"{statistics.median(prompt):.0f} ms (median), {prompt[-1]:.0f} ms at most")
    failed = sum(not run.good for run in runs)
    print(f"{failed} runs failed: {sum(run.hangs for run in runs)} hang, {sum(run.wrong for run in runs)} end wrongly, "
          f"{sum(bool(run.left) for run in runs)} leave something behind")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("--torch", help="elastic_torch_program; without it, its runs are left out")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hosts", help="only runs on these: one, emulated, ssh, networks")
    parser.add_argument("--slow", type=float, default=1e9, help="show the output of runs in which that took longer, ms")
    parser.add_argument("--csv", metavar="FOLDER")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as at the end, remove the networks
    networks = make_networks()
    runs, seed = [], args.seed
    try:
        while sum(len(run.happened) for run in runs) < args.faults:
            plan = draw_plan(seed)
            seed += 1
            is_possible = (networks or plan.hosts != "networks") and (args.torch or "torch" not in plan.optimizer)
            if not is_possible or plan.hosts != (args.hosts or plan.hosts):
                continue
            run = Run(args, plan, networks)
            runs.append(run)
            if args.verbose or not run.good:
                print(run.describe(), flush=True)
            if not run.good or any(ms > args.slow for _, ms in run.times):
                print(*run.left, run.output, sep="\n", flush=True)
                if args.keep:
                    with open(f"{args.keep}/{plan.seed}.log", "w") as file:
                        file.write(run.describe() + "\n" + run.output)
    finally:
        if networks:
            networks.remove()
    return report(args, runs)


if __name__ == "__main__":
    sys.exit(main())
