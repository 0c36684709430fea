#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tells jobs to end, in the ways that schedulers do, and checks that they stop in good order.

All ranks must stop after the same step, every command must end with status 0, no process may remain, and the job must
resume after that step, on any number of ranks.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "elastic"))
from jobs import Job

STEPS = 10**9
WAIT = 60  # seconds until a job must have begun or, after a save, ended


class Plan:
    """What happens in one run. `told`: who gets the signal."""

    def __init__(self, seed, mpirun, longest_save):
        draw = random.Random(seed)
        self.seed = seed
        self.ranks = draw.randint(1, 4)
        kinds = ["one", "elastic", "ssh", "by hand"] + (["mpirun"] if mpirun else [])
        # Each kind in turn.
        self.kind = kinds[seed % len(kinds)]
        if self.kind in ("ssh", "by hand"):
            self.ranks = 2 + 2 * draw.randint(0, 1)
        told = {"one": ["launcher", "rank", "all"], "elastic": ["launcher", "rank", "all"],
                "ssh": ["launcher", "agent", "rank", "all"], "by hand": ["launcher", "agent", "rank", "all"],
                "mpirun": ["launcher", "rank"]}
        self.told = draw.choice(told[self.kind])
        self.signal = draw.choice([signal.SIGTERM, signal.SIGUSR1])
        if self.kind == "mpirun" and self.told != "rank":
            self.signal = signal.SIGUSR1  # SIGTERM ends Open MPI's daemon and the job
        if self.told == "all":
            self.signal = signal.SIGTERM  # SIGUSR1 ends ssh and the shells in between
        self.save = draw.choice([0, 0, 0.3, 1]) if seed % 10 != 7 else longest_save
        self.delay = draw.uniform(0, 1)
        self.resume_on = draw.randint(1, 4)

    def __str__(self):
        return (f"seed {self.seed}: {self.kind} on {self.ranks} ranks, {signal.Signals(self.signal).name} to {self.told} "
                f"after {self.delay:.2f} s, save {self.save} s, resumes on {self.resume_on}")


class Failure(Exception):
    pass


class Run:
    """One job, its stop, and the job that resumes."""

    def __init__(self, args, plan, folder, port):
        self.args, self.plan, self.folder, self.port = args, plan, folder, port
        self.jobs = []

    def start(self, folder, command):
        os.makedirs(folder, exist_ok=True)
        self.jobs.append(Job(command, {}, folder))
        return self.jobs[-1]

    def program(self, steps, save):
        elastic = ["elastic"] if self.plan.kind == "elastic" else []
        return [self.args.program, self.folder, str(steps), str(int(1000 * save)), *elastic]

    def commands(self):
        plan = self.plan
        program = self.program(STEPS, plan.save)
        count = ["-np", str(plan.ranks)]
        if plan.kind == "mpirun":
            return [[self.args.mpirun, *count, *program]]
        kolorun = [self.args.kolorun, *count, "--start-timeout", str(WAIT)]
        half = plan.ranks // 2
        if plan.kind == "elastic":
            kolorun += ["--min-np", "1"]
        if plan.kind == "ssh":
            kolorun += ["-H", f"near:{half},far:{half}", "--network-interface", "lo"]
        if plan.kind != "by hand":
            return [[*kolorun, *program]]
        secret = f"{self.folder}/secret"
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(os.urandom(32).hex())
        kolorun += ["--rendezvous", f"127.0.0.1:{self.port}", "--slots", str(half), "--secret-file", secret]
        return [[*kolorun, *program]] * 2

    def ranks(self):
        pids = []
        for rank in range(self.plan.ranks):
            try:
                with open(f"{self.folder}/rank.{rank}") as file:
                    pids.append(int(file.read()))
            except (OSError, ValueError):
                return None
        return pids

    def wait(self, what, until):
        end = time.monotonic() + WAIT + self.plan.save
        while not (result := until()):
            if time.monotonic() > end:
                raise Failure(f"{what}: not within {WAIT + self.plan.save} s")
            time.sleep(0.01)
        return result

    def tell(self, jobs, ranks):
        """Sends the signal."""
        plan = self.plan
        if plan.told == "launcher":
            targets = [jobs[0].process.pid]
        elif plan.told == "rank":
            targets = [random.Random(plan.seed).choice(ranks)]
        elif plan.told == "agent" and plan.kind == "by hand":
            targets = [jobs[1].process.pid]
        elif plan.told == "agent":
            targets = [each.pid for each in jobs[0].processes() if b"--agent" in each.read("cmdline")
                       and b"sh\0" not in each.read("cmdline")][-1:]
        else:  # as Slurm signals every process of a job
            targets = {each.pid for job in jobs for each in job.processes()}
        for pid in targets:
            try:
                os.kill(pid, plan.signal)
            except ProcessLookupError:
                pass

    def ends(self, jobs, what):
        for job in jobs:
            status = self.wait(f"{what} does not end", lambda: (job.process.poll(), )[0] is not None and [job.process.poll()])
            if status != [0]:
                raise Failure(f"{what}: status {status[0]}")
            if left := job.left(patience=10):
                raise Failure(f"{what} leaves {left}")

    def steps(self, jobs, verb):
        found = [re.findall(rf"^rank (\d+) {verb} after step (\d+)$", job.output(), re.M) for job in jobs]
        return {int(rank): int(step) for each in found for rank, step in each}

    def run(self):
        plan = self.plan
        jobs = [self.start(f"{self.folder}/job{i}", command) for i, command in enumerate(self.commands())]
        ranks = self.wait("the job does not begin", self.ranks)
        time.sleep(plan.delay)
        self.tell(jobs, ranks)
        self.ends(jobs, "the job")
        stopped = self.steps(jobs, "stops")
        if len(stopped) != plan.ranks or len(set(stopped.values())) != 1:
            raise Failure(f"the ranks stop after {stopped}")
        step = stopped[0]
        resumed = [self.start(f"{self.folder}/resumed",
                              [self.args.kolorun, "-np", str(plan.resume_on), *self.program(step + 5, 0)])]
        self.ends(resumed, "the resumed job")
        begun = self.steps(resumed, "begins")
        if set(begun.values()) != {step} or len(begun) != plan.resume_on:
            raise Failure(f"stopped after {step}, and resumes after {begun}")
        return step

    def end(self):
        for job in self.jobs:
            job.end()

    def output(self):
        return "\n".join(job.output() for job in self.jobs)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("--mpirun")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest-save", type=float, default=20, help="seconds that every tenth save takes")
    args = parser.parse_args()
    failed = 0
    told = collections.Counter()
    steps = []
    for seed in range(args.seed, args.seed + args.runs):
        plan = Plan(seed, args.mpirun, args.longest_save)
        folder = tempfile.mkdtemp(prefix="kolo-stops-")
        run = Run(args, plan, folder, 20_000 + (os.getpid() + seed) % 10_000)
        try:
            steps.append(run.run())
        except Failure as failure:
            failed += 1
            print(f"{plan}\n{failure}\n{run.output()}", flush=True)
        finally:
            run.end()
            shutil.rmtree(folder, ignore_errors=True)
        told[f"{plan.kind}, {signal.Signals(plan.signal).name} to {plan.told}"] += 1
    for kind, count in sorted(told.items()):
        print(f"{count:4} {kind}")
    print(f"{args.runs} runs, stopped after {min(steps, default=0)} to {max(steps, default=0)} steps: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
