#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs fault_program repeatedly, each time with a different fault at a different moment, and checks the results.

Usage: run_faults.py PROGRAM [--runs N] [--seed S] [--ranks N] [--mpirun PATH] [--only HOW]
                     [--phase PHASE] [--results FILE] [--verbose]

Every run follows from its seed. --results appends the result of each run to a file, and the table then
covers all runs in it. Exit status 1 if a guarantee was broken in any run.
"""
import argparse
import collections
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HOWS = ["kill", "exception", "exit0", "_exit0", "_exit3", "abort", "stop", "stop+cont"]
PHASES = ["start", "first", "steady", "big", "join", "shutdown"]
# Maximum delay of the fault after the beginning of the phase, in microseconds.
SPANS = {"start": 400_000, "first": 30_000, "steady": 30_000, "big": 120_000, "join": 30_000,
         "shutdown": 3_000}
NOTICE_PROMISE = 0.5   # seconds until a rank inside a Kolo call names the culprit
STOP_PROMISE = 1.0     # after the time of stall_shutdown: the root asks before it gives up
END_PROMISE = 3.0      # seconds until the job is gone
STALL = 1.2            # what the program sets as stall_shutdown
WRITER_PATIENCE = 10.0  # a rank that was stopped while it wrote to others' tensors is killed after so long
GENEROUS = 6.0         # on a busy machine, what is later than a promise is no failure before that
PATIENCE = 40.0        # no run may take longer
START_PATIENCE = 20.0  # where ranks may wait for ever: in MPI's start-up
FEW_CUT_SHORT = 0.01   # more such ranks per run break the promise
CUT_SHORT = 0.1        # mpirun ends the others within this time of the first rank that fails


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def state_of_process(process):
    """A process's number and state, and the system calls in which its threads sleep."""
    pid, state = process
    sleeps = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/syscall") as file:
                sleeps.append(file.read().split()[0])
    except OSError:
        pass
    return f"process {pid} in state {state}, system calls {' '.join(sleeps)}"


class Run:
    def __init__(self, args, seed):
        draw = random.Random(seed)
        self.seed = seed
        self.ranks = args.ranks
        self.how = args.only or draw.choice(HOWS)
        self.phase = args.phase or draw.choice(PHASES)
        self.victim = draw.randrange(args.ranks)
        self.delay = draw.randrange(SPANS[self.phase])
        self.recovery = draw.random() < 0.5
        self.pause = draw.uniform(0.05, 0.7)
        self.args = args
        self.problems = []
        self.notices = []
        self.late = []
        self.hung = False
        self.launcher_hung = False
        self.gone = None  # how long after the harm
        self.cut_short = 0  # ranks that mpirun ended before they could say anything

    def execute(self):
        self.dir = tempfile.mkdtemp(prefix="kolo-faults-")
        self.log = os.path.join(self.dir, "log")
        open(self.log, "w").close()
        os.mkdir(os.path.join(self.dir, "tmp"))
        shm_before = set(os.listdir("/dev/shm"))
        environment = dict(os.environ, TMPDIR=os.path.join(self.dir, "tmp"),
                           OMPI_MCA_btl_vader_backing_directory=os.path.join(self.dir, "tmp"))
        command = [self.args.mpirun, "-np", str(self.ranks)]
        if self.recovery:
            command.append("--enable-recovery")
        command += [self.args.program, self.how.split("+")[0], self.phase, str(self.victim),
                    str(self.delay), self.log]
        out = open(os.path.join(self.dir, "out"), "w+")
        started = now()
        job = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment,
                               start_new_session=True)
        resume_at = None
        while job.poll() is None:
            time.sleep(0.01)
            if self.how == "stop+cont":
                stopped = self.stopped_process()
                if stopped and resume_at is None:
                    resume_at = now() + self.pause
                if stopped and resume_at and now() >= resume_at:
                    os.kill(stopped, signal.SIGCONT)
            at_start = self.phase == "start"
            patience = START_PATIENCE if at_start else PATIENCE
            if now() - started > patience:
                self.hung = True
                remaining = list(self.processes())
                if not remaining:
                    self.launcher_hung = True
                elif not at_start:
                    self.problems.append(f"hangs for {patience:.0f} s: " +
                                         ", ".join(map(state_of_process, remaining)))
                for pid, _ in remaining:
                    os.kill(pid, signal.SIGKILL)
                os.killpg(job.pid, signal.SIGKILL)
                break
        self.status = job.wait()
        self.ended = now()
        time.sleep(0.05)
        out.seek(0)
        self.output = out.read()
        out.close()
        self.left_processes()
        for name in set(os.listdir("/dev/shm")) - shm_before:
            if name.startswith("kolo"):
                self.problems.append(f"/dev/shm/{name} is left")
        self.left_files = sorted(
            os.path.relpath(os.path.join(at, name), os.path.join(self.dir, "tmp"))
            for at, _, names in os.walk(os.path.join(self.dir, "tmp")) for name in names)
        self.foreign = [name for name in self.left_files
                        if re.match(r"(ompi\.|vader_segment|pmix)", name)]
        for name in set(self.left_files) - set(self.foreign):
            self.problems.append(f"the file {name} is left")
        self.read_log()
        self.judge()
        if not self.problems:
            shutil.rmtree(self.dir, ignore_errors=True)

    def processes(self):
        """The processes of this run: the path of its log is among their arguments."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    arguments = file.read().split(b"\0")
                if arguments[0] != self.args.program.encode() or self.log.encode() not in arguments:
                    continue
                with open(f"/proc/{pid}/stat") as file:
                    state = file.read().rsplit(") ", 1)[1][0]
                yield int(pid), state
            except (OSError, IndexError):
                continue

    def stopped_process(self):
        return next((pid for pid, state in self.processes() if state == "T"), None)

    def left_processes(self):
        left = [pid for pid, state in self.processes() if state != "Z"]
        if left:  # the job's own end may take a moment
            time.sleep(1.0)
            left = [pid for pid, state in self.processes() if state != "Z"]
        if left:
            self.problems.append(f"{len(left)} processes are left")
        for pid in left:
            os.kill(pid, signal.SIGKILL)

    def read_log(self):
        self.harm = None
        self.state = "never"
        self.caught = {}
        self.ends = collections.Counter()
        self.begun = 0  # ranks whose session began
        for line in open(self.log):
            at, rank, what = line.rstrip("\n").split(" ", 2)
            if what.startswith("harm"):
                self.harm = float(at) / 1000
                self.state = what.split(" ", 4)[4]
            elif what.startswith("caught:") and int(rank) != self.victim:
                _, ranks, text = what.split(":", 2)
                self.caught[int(rank)] = (float(at) / 1000, [int(r) for r in ranks.split()], text)
            elif what.startswith("process"):
                self.begun += 1
            elif what.startswith("ends"):
                self.ends[what] += 1
            elif what.startswith("wrong"):
                self.problems.append(what)

    def judge(self):
        if self.harm is None:
            self.problems.append("the harm never came")
            return
        others = set(range(self.ranks)) - {self.victim}
        within = self.state == "in the session" and self.phase not in ("start", "shutdown")
        if self.how == "stop+cont":
            if within and self.status != 0:
                self.problems.append(f"ends with status {self.status} though the rank went on")
            return
        if self.hung and self.how == "stop" and self.ends["ends well"] == self.ranks - 1:
            self.problems = []  # the others wait in MPI_Finalize until it goes on
            return
        if self.hung and not self.launcher_hung:
            if self.begun == self.ranks:
                self.problems.append("hangs though all ranks were in the session")
            return
        if not self.launcher_hung:  # else mpirun did not end though all its processes had
            self.gone = self.ended - self.harm
        allowance = STALL if self.how == "stop" else 0.0
        writes = "process [0-9]+ has been writing to this rank's shared tensors for [0-9]+ s: "
        if re.search(writes + "it may still write", self.output):
            self.problems.append("a stopped process was not killed, though it was writing")
        if self.how == "stop" and re.search(writes + "it is stopped and will be killed", self.output):
            allowance += WRITER_PATIENCE
        # A process that ends after its session has ended causes no failure.
        # With recovery, mpirun returns 0 whatever the processes return.
        # A rank that calls exit(0) when all are about to leave counts as leaving.
        leaves = self.how == "exit0" and self.phase == "shutdown"
        if self.state == "in the session" and self.status == 0 and \
                not self.recovery and not leaves:
            self.problems.append("the status is 0")
        if within and self.ends["ends well"] > 0:
            self.problems.append(f"{self.ends['ends well']} ranks end as if nothing had happened")
        if self.gone and self.gone > END_PROMISE + allowance:
            self.late.append(f"the job is gone after {self.gone:.1f} s")
        if self.gone and self.gone > END_PROMISE + allowance + GENEROUS:
            self.problems.append(f"the job is gone only after {self.gone:.1f} s")
        if not within or self.how == "abort":
            return
        # mpirun ends a job with the first rank that fails, and does not wait for what others say.
        first = min((at for at, _, _ in self.caught.values()), default=math.inf)
        ended_early = not self.recovery and (self.launcher_hung or self.ended - first < CUT_SHORT)
        for rank in sorted(others):
            if rank not in self.caught:
                if ended_early:
                    self.cut_short += 1
                else:
                    self.problems.append(f"rank {rank} said nothing")
                continue
            at, named, text = self.caught[rank]
            notice = at - self.harm - allowance
            self.notices.append(notice)
            if self.victim not in named:
                self.problems.append(f"rank {rank} blames {named}: {text}")
            if self.how == "stop" and "stopped (state T)" not in text:
                self.problems.append(f"rank {rank} does not say that it is stopped: {text}")
            promise = STOP_PROMISE if self.how == "stop" else NOTICE_PROMISE
            if notice > promise:
                self.late.append(f"rank {rank} learns of it after {notice:.2f} s")
            if notice > promise + GENEROUS:
                self.problems.append(f"rank {rank} learns of it only after {notice:.2f} s")

    def describe(self):
        recovery = " with recovery" if self.recovery else ""
        return (f"seed {self.seed}: {self.how} in {self.phase} ({self.state}), victim "
                f"{self.victim}{recovery}, status {self.status}")


    def summary(self):
        return {name: getattr(self, name) for name in
                ("seed", "how", "phase", "state", "recovery", "status", "problems", "notices",
                 "late", "hung", "launcher_hung", "cut_short", "foreign", "gone")}


def table(runs):
    rows = ["| harm | phase | runs | broken | ranks that named it | named within, median | "
            "most | job gone within, most | later than promised | waits in MPI |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for how in HOWS:
        for phase in PHASES:
            these = [run for run in runs if (run["how"], run["phase"]) == (how, phase)]
            if not these:
                continue
            notices = [notice for run in these for notice in run["notices"]]
            gone = [run["gone"] for run in these if run["gone"] is not None]
            middle = f"{1000 * statistics.median(notices):.0f} ms" if notices else ""
            most = f"{1000 * max(notices):.0f} ms" if notices else ""
            end = f"{max(gone):.1f} s" if gone else ""
            rows.append(f"| {how} | {phase} | {len(these)} | "
                        f"{sum(bool(run['problems']) for run in these)} | {len(notices)} | {middle} | "
                        f"{most} | {end} | {sum(bool(run['late']) for run in these)} | "
                        f"{sum(run['hung'] for run in these) or ''} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--only", choices=HOWS)
    parser.add_argument("--phase", choices=PHASES)
    parser.add_argument("--results")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    runs = []
    for seed in range(args.seed, args.seed + args.runs):
        run = Run(args, seed)
        run.execute()
        runs.append(run.summary())
        if args.results:
            with open(args.results, "a") as file:
                file.write(json.dumps(run.summary()) + "\n")
        if args.verbose or run.problems:
            print(run.describe(), *run.late, *(f"BROKEN: {p}" for p in run.problems), sep="; ",
                  flush=True)
        if run.problems:
            print(f"  {run.dir}", flush=True)
    broken = sum(bool(run["problems"]) for run in runs)
    if sum(run["cut_short"] for run in runs) > max(1, len(runs) * FEW_CUT_SHORT):
        print("BROKEN: too many ranks said nothing before mpirun ended them")
        broken += 1
    if args.results:
        with open(args.results) as file:
            runs = [json.loads(line) for line in file]
    print(table(runs))
    print(f"\n{len(runs)} runs on {args.ranks} ranks; {sum(bool(run['problems']) for run in runs)} "
          f"broke a promise; {sum(bool(run['late']) for run in runs)} were later than promised; "
          f"after {sum(bool(run['foreign']) for run in runs)} Open MPI had left files of its own. "
          f"mpirun ended {sum(run['cut_short'] for run in runs)} ranks within {CUT_SHORT} s of the first that failed, "
          f"before they could say why; {sum(run['launcher_hung'] for run in runs)} times it did not end "
          f"after all its processes had.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
