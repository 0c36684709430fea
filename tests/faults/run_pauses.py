#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops and continues the processes of jobs, again and again, and checks that the jobs go on and blame nobody wrongly.

Usage: run_pauses.py PROGRAM [--kolorun PATH] [--elastic PROGRAM] [--mpirun PATH] [--pauses N] [--long N]
                     [--most SECONDS] [--limit SECONDS] [--seed S] [--jobs J] [--results FILE] [--only SEED] [--verbose]

PROGRAM is pause_program, which mpirun and kolorun start; --elastic names elastic_program, which kolorun starts as an
elastic job. pauses.py draws the jobs from the seed. What is stopped is all ranks, also with their launcher, the ranks
of one host, or one rank, for 0.1 to 2 s (--most); --long of the pauses last 10 to 60 s.

--limit is the stall_shutdown of two thirds of the jobs. It must be far from the lengths of pauses, and longer than any
operation takes on a busy machine.

A job must go on after each pause. Only a pause of a part of the job that is longer than stall_shutdown may end its
session; the error then names exactly the ranks that were stopped, and the ranks open the next session. In an elastic
job such ranks, and those that the test kills, are replaced. No other line may report a rank that was not stopped.

--results appends the result of each job to a file, whose jobs are not run again unless they broke a promise; the last
result of a job counts. Exit status 1 if a job broke a promise. The output of such a job is kept.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from pause_jobs import ElasticJob, PlainJob
from pause_judge import Judge
from pauses import PHASES, SHORT, draw_plans
from jobs import describe  # of tests/elastic, as pause_jobs has set the path

PATIENCE = 300       # seconds until all ranks go on after a pause, or until the job ends on a busy machine
START_PATIENCE = 120  # until they have started
PHASE_PATIENCE = 5   # until a phase begins
SETTLED = 0.5        # for the last lines about a pause


class Broken(Exception):
    """The job cannot be continued."""


class Run:
    def __init__(self, args, plan):
        self.args, self.plan = args, plan
        self.outcomes = []  # of the pauses
        self.problems = []
        self.may_abort = False
        self.job = None

    def abandon(self):
        if self.job:
            self.job.end()

    def execute(self):
        self.folder = tempfile.mkdtemp(prefix="kolo-pauses-")
        self.run = (ElasticJob if self.plan.launcher == "elastic" else PlainJob)(self.args, self.plan, self.folder)
        self.job = self.run.job
        self.seen = 0  # bytes of the output that were judged
        try:
            self.wait_until(lambda: self.run.goes_on([0] * self.plan.ranks), START_PATIENCE, "has not started")
            self.judge(Judge([], ends=self.plan.launcher == "elastic"))
            for pause in self.plan.pauses:
                self.suffer(pause)
            self.end()
        except Broken as broken:
            self.problems.append(str(broken))
        finally:
            self.job.end()
        if not self.problems:
            shutil.rmtree(self.folder, ignore_errors=True)
        return {"plan": dataclasses.asdict(self.plan), "outcomes": self.outcomes, "problems": self.problems}

    def wait_until(self, condition, patience, problem):
        until = time.monotonic() + patience
        while not condition():
            if self.job.process.poll() is not None:
                raise Broken(f"{problem}: status {self.job.process.poll()}: {self.unread()}")
            if time.monotonic() > until:
                processes = "; ".join(describe(each) for each in self.job.processes())
                raise Broken(f"{problem} for {patience} s: {processes}: {self.unread()}")
            time.sleep(0.02)

    def unread(self):
        return self.job.output()[self.seen:].replace("\n", "|")[-3000:]

    def judge(self, judge):
        output = self.job.output()
        judge.read(output[self.seen:])
        self.seen = len(output)
        self.problems += judge.problems

    def suffer(self, pause):
        rank = pause.index if pause.who == "rank" else 0
        if pause.phase in PHASES:
            until = time.monotonic() + PHASE_PATIENCE
            while not self.run.is_in(pause.phase, rank) and time.monotonic() < until:
                time.sleep(0.002)
        else:
            time.sleep(random.Random(pause.length).uniform(0, 0.3))
        before = self.run.pids()
        killed = self.kill(pause)
        time.sleep(pause.delay)
        stopped, ranks = self.processes(pause, killed)
        steps = self.run.progress()
        self.send(stopped, signal.SIGSTOP, pause.spread)
        time.sleep(pause.length)
        self.send(stopped, signal.SIGCONT, pause.spread / 2)
        begun = len(self.problems)
        try:
            self.wait_until(lambda: self.run.goes_on(steps), PATIENCE, f"does not go on after {pause}")
        except Broken:
            self.outcomes.append("hangs")
            raise
        time.sleep(SETTLED)
        after = self.run.pids()
        self.judge_pause(pause, before, after, killed, stopped, ranks)
        self.problems[begun:] = [f"{each} (in {pause})" for each in self.problems[begun:]]

    def kill(self, pause):
        if pause.phase != "round":
            return set()
        process = self.run.pids()[pause.victim]
        os.kill(process, signal.SIGKILL)
        return {process}

    def processes(self, pause, killed):
        """The processes to stop, and the ranks among them."""
        pids = {rank: pid for rank, pid in self.run.pids().items() if pid not in killed}
        hosts = self.plan.hosts()
        if pause.who == "rank":
            ranks = [pause.index] if pause.index in pids else [min(pids)]
            return [pids[ranks[0]]], ranks
        if pause.who == "host":
            ranks = [rank for rank in hosts[pause.index] if rank in pids] or [min(pids)]
            own = set(self.run.processes_of_host(ranks)) - killed
            return sorted(own), [rank for rank, pid in pids.items() if pid in own]
        everybody = [each.pid for each in self.job.processes() if each.pid not in killed]
        programs = {os.path.basename(self.args.program), os.path.basename(self.args.elastic or "")}
        own = [pid for pid in everybody if pause.who == "job" or self.name_of(pid) in programs]
        return own, list(pids)

    @staticmethod
    def name_of(pid):
        try:
            return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        except OSError:
            return ""

    @staticmethod
    def send(processes, number, spread):
        for pid in processes:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass  # a launcher has ended it
            time.sleep(spread / len(processes))

    def judge_pause(self, pause, before, after, killed, stopped, ranks):
        is_part = pause.who in ("rank", "host")
        is_long = pause.length > SHORT[1]
        elastic = self.plan.launcher == "elastic"
        loses_host = elastic and pause.who == "host" and is_long
        ends = is_part and is_long and (self.plan.limit > 0 or loses_host)
        suspects = set(ranks) if is_part else set()
        # In a round, the numbers of ranks change.
        for numbers in (before, after):
            if killed:
                suspects |= {rank for rank, pid in numbers.items() if pid in killed or is_part and pid in stopped}
        # Only the first rank of a host speaks to other hosts, which cannot tell whether those behind it are stopped.
        behind = [rank for host in self.plan.hosts() if self.plan.per_host and host[0] in suspects for rank in host]
        judge = Judge(suspects, ends, behind, killed, stopped if ends else ())
        self.judge(judge)
        self.may_abort |= judge.has_ended
        self.outcomes.append("next session" if judge.has_ended and ends else "goes on")

    def end(self):
        open(f"{self.folder}/end", "w").close()
        until = time.monotonic() + PATIENCE
        while self.job.process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        status = self.job.process.poll()
        if status is None:
            processes = "; ".join(describe(each) for each in self.job.processes())
            raise Broken(f"does not end: {processes}: {self.unread()}")
        output = self.job.output()
        aborts = self.plan.launcher == "mpirun" and self.may_abort and "MPI_ABORT" in output
        if not aborts and (status != 0 or not self.run.ends_well(output)):
            self.problems.append(f"ends with status {status}: {self.unread()}")
        judge = Judge([], ends=False)
        judge.comes_to_the_end = True
        self.judge(judge)
        left = [describe(each) for each in self.job.processes()]
        if left:
            time.sleep(1)
            self.problems += [f"is left: {describe(each)}" for each in self.job.processes()]


def describe_job(result):
    plan = result["plan"]
    return (f"job {plan['seed']}: {plan['launcher']}, {plan['ranks']} ranks, {plan['per_host'] or 'all'} per host, "
            f"limit {plan['limit']} s, {len(result['outcomes'])} of {len(plan['pauses'])} pauses")


def table(results):
    rows = ["| job | stopped | length | pauses | went on | next session | hung |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    groups = {}
    for result in results:
        for pause, outcome in zip(result["plan"]["pauses"], result["outcomes"]):
            length = "0.1 to 2 s" if pause["length"] <= SHORT[1] else "10 to 60 s"
            groups.setdefault((result["plan"]["launcher"], pause["who"], length), []).append(outcome)
    for key, outcomes in sorted(groups.items()):
        counts = [outcomes.count(each) for each in ("goes on", "next session", "hangs")]
        rows.append("| " + " | ".join(map(str, [*key, len(outcomes), *counts])) + " |")
    return "\n".join(rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kolorun")
    parser.add_argument("--elastic", help="elastic_program; needs --kolorun")
    parser.add_argument("--mpirun")
    parser.add_argument("--pauses", type=int, default=100)
    parser.add_argument("--long", type=int, help="so many of them last 10 to 60 s; default: 1 in 20")
    parser.add_argument("--most", type=float, default=SHORT[1], help="seconds that the others last at most")
    parser.add_argument("--limit", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=4, help="so many at once")
    parser.add_argument("--only", type=int, metavar="SEED", help="only the job of this seed")
    parser.add_argument("--results")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if args.long is None:
        args.long = args.pauses // 20
    return args


def main():
    args = parse()
    launchers = ["mpirun"] * bool(args.mpirun) + ["kolorun"] * bool(args.kolorun)
    launchers += ["elastic"] * bool(args.kolorun and args.elastic)
    plans = draw_plans(args.seed, args.pauses, args.long, args.most, args.limit, launchers)
    if args.only is not None:
        plans = [plan for plan in plans if plan.seed == args.only]
    results = {}  # by seed
    if args.results and os.path.exists(args.results):
        with open(args.results) as file:
            results = {result["plan"]["seed"]: result for result in map(json.loads, file)}
    done = {seed for seed, result in results.items() if not result["problems"]}
    runs = [Run(args, plan) for plan in plans if plan.seed not in done]

    def interrupt(*_):
        pool.shutdown(wait=False, cancel_futures=True)
        for run in runs:
            run.abandon()
        os._exit(143)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, interrupt)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(run.execute): run for run in runs}
        for future in concurrent.futures.as_completed(futures):
            result = future.result()
            results[result["plan"]["seed"]] = result
            if args.results:
                with open(args.results, "a") as file:
                    file.write(json.dumps(result) + "\n")
            if args.verbose or result["problems"]:
                print(describe_job(result), *(f"  BROKEN: {each}" for each in result["problems"]), sep="\n", flush=True)
            if result["problems"]:
                print(f"  {futures[future].folder}", flush=True)
    results = list(results.values())
    broken = sum(bool(result["problems"]) for result in results)
    print(table(results))
    print(f"\n{len(results)} jobs, {sum(len(result['outcomes']) for result in results)} pauses; {broken} jobs broke a "
          "promise")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
