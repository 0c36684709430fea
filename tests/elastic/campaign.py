#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs elastic trainings, each with different faults, and checks their results.

Usage: campaign.py KOLORUN PROGRAM [--torch PROGRAM] [--faults N] [--seed S] [--results FILE] [--csv FOLDER]

plans.py draws each run from its seed. A run must end with status 0 and the words "as replayed": its parameters equal
those of a replay of its steps in one process. It must leave no process and no shared memory. Prints the number of
faults of each kind in each phase, and the time from a fault to the end of the next step; --csv writes both to
elastic_faults.csv and elastic_runs.csv. --results appends the result of each run to a file, and the tables then cover
all runs in it; the last result of a seed counts. Exit status 1 if a run failed. Runs on two
networks need root, and are left out otherwise.
"""
import argparse
import collections
import dataclasses
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time

from jobs import Job, describe, write_csv
from networks import make_networks
from plans import PHASES, RANKS, draw_plan

PATIENCE = 180  # seconds
KINDS = ["kill", "stop", "pause", "exit", "throw", "leave", "host", "hoststop", "cut"]
RECOVERED = re.compile(r"^next step ([0-9.]+) ms after fault ([0-9]+)$", re.MULTILINE)
FAULT_FIELDS = ["fault", "phase", "faults", "hangs", "wrong", "left", "recovered", "median_ms", "max_ms"]
RUN_FIELDS = ["hosts", "optimizer", "runs", "faults", "hangs", "wrong", "left"]


class Helper:
    """For temporary faults: cuts the cable when a process waits for it, restores it later, and continues stopped processes."""

    def __init__(self, networks, job, folder, plan):
        self.networks, self.job, self.folder, self.plan = networks, job, folder, plan
        self.begun = {}  # when
        self.before_cut = None  # what the job had written

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
                    self.before_cut = len(self.job.output())
                    self.networks.set_cable("down")
                    open(f"{path}.done", "w").close()
            elif now >= self.begun[i] + self.plan.lasts:
                self.begun[i] = float("inf")
                self.undo(kind)
        self.end_after_return()

    def end_after_return(self):
        """Ends the training once the host that was cut off takes part again."""
        if self.before_cut is not None and f"session of {RANKS} ranks" in self.job.output()[self.before_cut:]:
            open(f"{self.folder}/end", "w").close()

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


def name_of(fault):
    return " ".join(fault.split(":")[:2])


@dataclasses.dataclass
class Result:
    """The faults of a run, each as its kind and its phase."""

    seed: int
    hosts: str
    optimizer: str
    happened: list  # faults
    times: list  # pairs of a fault and milliseconds
    hangs: bool
    wrong: bool
    left: list

    def is_good(self):
        return not (self.hangs or self.wrong or self.left)

    def waits(self):
        """Whether the run has faults that other ranks notice only after a timeout."""
        return any(each.split()[0] in ("stop", "pause", "hoststop", "cut") or each.split()[1] in ("start", "startup")
                   for each in self.happened)


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
                hangs = self.status is None
                left = [] if hangs else job.left()
                waiting = [describe(each) for each in job.processes()] if hangs else []
            finally:
                job.end()
                helper.end()
            self.output = job.output() + "".join(f"waits: {each}\n" for each in waiting)
            happened = [name_of(each) for i, each in enumerate(plan.faults) if os.path.exists(f"{folder}/fault.{i}")]
        times = [(name_of(plan.faults[int(i)]), float(ms)) for ms, i in RECOVERED.findall(self.output)]
        wrong = not hangs and (self.status != 0 or "as replayed" not in self.output)
        self.result = Result(plan.seed, plan.hosts, plan.optimizer, happened, times, hangs, wrong, left)

    def describe(self):
        what = "hangs" if self.result.hangs else f"status {self.status}"
        more = " ".join(f"{name}={value}" for name, value in self.plan.environment.items())
        times = ", ".join(f"{fault} {ms:.0f} ms" for fault, ms in self.result.times)
        return (f"seed {self.plan.seed}: {what}: {times or 'no next step'}; {self.plan.hosts}, "
                f"{self.plan.lasts:.1f} s: {more} {' '.join(self.command)}")


def fault_rows(runs):
    rows = []
    for kind in KINDS:
        for phase in PHASES:
            fault = f"{kind} {phase}"
            own = [run for run in runs for each in run.happened if each == fault]
            times = [ms for run in runs for each, ms in run.times if each == fault]
            if own:
                rows.append([kind, phase, len(own), sum(run.hangs for run in own), sum(run.wrong for run in own),
                             sum(bool(run.left) for run in own), len(times),
                             f"{statistics.median(times):.0f}" if times else "", f"{max(times):.0f}" if times else ""])
    return rows


def run_rows(runs):
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run.hosts, run.optimizer].append(run)
    return [[*key, len(own), sum(len(run.happened) for run in own), sum(run.hangs for run in own),
             sum(run.wrong for run in own), sum(bool(run.left) for run in own)] for key, own in sorted(groups.items())]


def all_results(args, runs):
    """The last result of each seed."""
    if not args.results:
        return runs
    with open(args.results) as file:
        return list({run.seed: run for run in (Result(**json.loads(line)) for line in file)}.values())


def report(args, runs):
    for fields, rows in ((FAULT_FIELDS, fault_rows(runs)), (RUN_FIELDS, run_rows(runs))):
        print("| " + " | ".join(fields) + " |\n|" + " --- |" * len(fields))
        for row in rows:
            print("| " + " | ".join(map(str, row)) + " |")
        print()
    if args.csv:
        write_csv(f"{args.csv}/elastic_faults.csv", FAULT_FIELDS, fault_rows(runs))
        write_csv(f"{args.csv}/elastic_runs.csv", RUN_FIELDS, run_rows(runs))
    prompt = sorted(ms for run in runs if not run.waits() for _, ms in run.times)
    print(f"{len(runs)} runs, {sum(len(run.happened) for run in runs)} faults")
    if prompt:
        print(f"after {len(prompt)} faults of runs in which nobody waits for a timeout, the next step was done within "
              f"{statistics.median(prompt):.0f} ms (median), {prompt[-1]:.0f} ms at most")
    failed = sum(not run.is_good() for run in runs)
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
    parser.add_argument("--results", metavar="FILE")
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
            runs.append(run.result)
            is_good = run.result.is_good()
            if args.results:
                with open(args.results, "a") as file:
                    file.write(json.dumps(dataclasses.asdict(run.result)) + "\n")
            if args.verbose or not is_good:
                print(run.describe(), flush=True)
            if not is_good or any(ms > args.slow for _, ms in run.result.times):
                print(*run.result.left, run.output, sep="\n", flush=True)
    finally:
        if networks:
            networks.remove()
    return report(args, all_results(args, runs))


if __name__ == "__main__":
    sys.exit(main())
