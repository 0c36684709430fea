#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random training programs on 1 to 4 ranks in turn, and shrinks those that fail.

Prints for each failure the seed, the smallest program that still fails and the command that repeats it; at
the end the number of programs and steps, and how often each pair of features occurred.
"""

import argparse
import collections
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMP_NUM_THREADS": "1",
    "KOLO_FLIGHT_RECORDER_DIR": "off",
}
FEW = 20  # a pair should occur this often

# Features that no program has together, and why.
NEVER_TOGETHER = {
    ("hosts_of_one", "hosts_of_two"): "two values of one setting",
    ("fewer_ranks", "more_ranks"): "a program changes its number of ranks once",
    ("killed", "polled"): "without sockets, nothing tells that a process of another host is dead",
    ("every_pass", "no_sync"): "each pass is reduced, or only the last",
    ("sharded", "uneven"): "a rank that has joined cannot step its parts",
    ("module_gradients", "sharded"): "an optimizer reduces, or a module",
    ("fully_sharded", "uneven"): "a rank that has joined cannot step its shards",
    ("communication_hook", "int8"): "an optimizer has one hook",
    ("communication_hook", "power_sgd"): "an optimizer has one hook",
    ("int8", "power_sgd"): "an optimizer has one hook",
} | {
    tuple(sorted(("fully_sharded", other))): "FullySharded wraps no optimizer and has no groups and hooks"
    for other in ("sharded", "module_gradients", "jit", "replaced", "unfrozen", "expanded", "shared_memory",
                  "groups", "communication_hook", "int8", "power_sgd", "token")
} | {
    tuple(sorted((torch, own))): "one is of LibTorch, the other of programs without it"
    for torch in ("checkpointed", "every_pass", "hook_exception", "module_gradients", "no_sync",
                  "set_to_none")
    for own in ("shared_memory", "token")
}
# Over MPI, a session that failed in a batch ends the job when the program is done.
OVER_MPI = {"over_mpi", "hosts_of_one", "hosts_of_two"}
# Without MPI all ranks share memory, and a session has all of them.
NEEDS_MPI = ["over_mpi", "hosts_of_one", "hosts_of_two", "polled", "fewer_ranks", "more_ranks"]


class Job:
    """One run of a program under mpirun or kolorun."""

    def __init__(self, args, program, ranks, options):
        kill = "--kill" in options
        recovery = ["--enable-recovery"] if kill and not args.kolorun else []
        self.command = [args.kolorun or args.mpirun, *recovery, "-np", str(ranks), program,
                        *map(str, options)]
        # mpirun may lose the last words of rank 0 when a process aborts.
        words = tempfile.NamedTemporaryFile("r", prefix="kolo-journeys-", encoding="utf-8")
        self.survivors = ranks - 1 if kill and ranks > 1 else 0
        # Each program ends itself if it hangs.
        limit = args.patience * (5 + (args.batch // 2 if "--runs" in options else 0))
        process = subprocess.Popen(self.command + ["--patience", str(args.patience),
                                                   "--words", words.name],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=os.environ | ENVIRONMENT, start_new_session=True,
                                   errors="replace")
        self.hung = False
        try:
            self.output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            self.hung = True
            os.killpg(process.pid, signal.SIGKILL)
            self.output = process.communicate()[0]
        with words:
            self.output += words.read()
        self.status = process.returncode
        # Open MPI writes so when mpirun itself crashes, which it does at times after all ranks ended.
        crash = rf"^\[[^\]]+:0*{process.pid}\] \*\*\* Process received signal"
        self.launcher_crashed = re.search(crash, self.output, re.M) is not None
        self.done = re.findall(r"^JOURNEY seed (\d+) steps (\d+): (.*)$", self.output, re.M)
        self.complaints = re.findall(r"JOURNEY (?:FAILS|HANGS) seed (\d+) rank \d+: .*", self.output)

    def failed(self):
        if self.survivors:
            return self.hung or self.output.count("JOURNEY SURVIVED") != self.survivors
        if self.hung or self.complaints:
            return True
        return "all as expected" not in self.output or (
            self.status != 0 and not self.launcher_crashed and not self.aborts_at_exit())

    def aborts_at_exit(self):
        """True if a session failed in a batch that MPI carried.

        mpirun returns MPI_Abort's 1 then, and more than 128 after a signal.
        """
        return self.status == 1 and any(
            "callback_exception" in features and OVER_MPI & set(features.split(","))
            for _, _, features in self.done)

    def lines(self):
        """The lines that report failures, without mpirun's own messages."""
        found = re.findall(r"JOURNEY (?:FAILS|HANGS) .*", self.output)
        if found:
            # How processes ended, if not by themselves.
            return found + re.findall(r".*(?:on signal|Signal:|terminate called).*", self.output)
        lines = [line for line in self.output.splitlines()
                 if line.strip() and not line.startswith(("JOURNEY seed", "---"))]
        return lines[-6:] + [f"status {self.status}"]

    def kind(self):
        """A key that is equal for failures with the same cause."""
        line = self.lines()[0] if self.lines() else "no words"
        return re.sub(r"-?\d+(\.\d+)?", "#", re.sub(r"^.*?rank \d+: ", "", line))[:160]


def shrink(args, program, ranks, seed, features):
    """The options of a smaller program that still fails."""
    options = ["--seed", seed, *args.more]
    deadline = time.monotonic() + args.shrink_seconds

    def still_fails(more):
        return time.monotonic() < deadline and Job(args, program, ranks, options + more).failed()

    without = [name for name in (args.without or "").split(",") if name]
    for name in features:
        attempt = without + [name]
        if still_fails(["--without", ",".join(attempt)]):
            without = attempt
    if without:
        options += ["--without", ",".join(without)]
    for what, first in (("--epochs", 4), ("--steps", 14)):
        smallest = None
        number = first
        while number >= 1 and still_fails([what, number]):
            smallest = number
            number //= 2
        if smallest:
            options += [what, smallest]
    if ranks > 2 and Job(args, program, 2, options).failed():
        ranks = 2
    return ranks, options


def culprit(args, program, ranks, job):
    """The seed that fails alone, for a run that failed at its end."""
    for seed, _, features in job.done:
        if "departure" in features or "callback" in features:
            if Job(args, program, ranks, ["--seed", seed, *args.more]).failed():
                return seed
    return job.done[-1][0] if job.done else None


class Campaign:
    def __init__(self, args):
        self.args = args
        self.begin = time.monotonic()
        self.programs = collections.Counter()  # by ranks
        self.steps = 0
        self.pairs = collections.Counter()  # of this and of earlier campaigns
        self.earlier = 0  # programs
        if args.counts and os.path.exists(args.counts):
            with open(args.counts, encoding="utf-8") as file:
                counts = json.load(file)
            self.earlier = counts["programs"]
            self.pairs.update({tuple(pair.split(" ")): times for pair, times in counts["pairs"].items()})
        self.failures = collections.defaultdict(list)  # by kind
        self.launcher_crashes = 0

    def count(self, ranks, job):
        self.launcher_crashes += job.launcher_crashed
        for _, steps, features in job.done:
            self.programs[ranks] += 1
            self.steps += int(steps)
            names = [name for name in features.split(",") if name]
            self.pairs.update((name, name) for name in names)
            self.pairs.update(itertools.combinations(sorted(names), 2))

    def features_of(self, program, ranks, seed):
        text = Job(self.args, program, ranks, ["--seed", seed, "--print", *self.args.more]).output
        lines = text.splitlines()
        return [name for name in lines[1].strip().split(",") if name] if len(lines) > 1 else []

    def report(self, program, ranks, seed, job):
        kind = job.kind()
        features = self.features_of(program, ranks, seed)
        self.failures[kind].append((seed, ranks, features))
        print(f"FAILED after {time.monotonic() - self.begin:.0f} s: {os.path.basename(program)} "
              f"--seed {seed} on {ranks} ranks: {','.join(features)}")
        for line in job.lines()[:6]:
            print(f"  {line}")
        if self.args.shrink_seconds > 0 and len(self.failures[kind]) == 1:
            small_ranks, options = shrink(self.args, program, ranks, seed, features)
            again = Job(self.args, program, small_ranks, options)
            print(Job(self.args, program, small_ranks, options + ["--print"]).output.strip())
            print("  " + ("fails so: " + (again.lines() or ["?"])[0] if again.failed()
                          else "the smaller program did not fail again"))
            print(f"  repeat: {self.args.kolorun or 'mpirun'} -np {small_ranks} {program} "
                  + " ".join(map(str, options)))
        sys.stdout.flush()

    def run(self):
        args = self.args
        seed = args.seed
        end = self.begin + args.seconds
        for ranks, program in itertools.cycle(itertools.product(args.ranks, args.program)):
            self.run_batch(program, ranks, seed, end)
            self.kill_one(program, ranks, seed, end)
            seed += args.batch
            if self.failures and args.first_failure:
                return
            if time.monotonic() >= end or (args.runs and seed >= args.seed + args.runs):
                return

    def run_batch(self, program, ranks, seed, end):
        args = self.args
        after = seed + args.batch
        while seed < after and time.monotonic() < end:
            job = Job(args, program, ranks, ["--seed", seed, "--runs", after - seed, "--seconds",
                                             max(1, int(end - time.monotonic())), *args.more])
            self.count(ranks, job)
            if not job.failed():
                return
            bad = culprit(args, program, ranks, job) if not job.complaints else job.complaints[0]
            bad = bad or seed
            self.report(program, ranks, bad, job)
            if args.first_failure:
                return
            seed = max(int(bad), seed) + 1

    def kill_one(self, program, ranks, seed, end):
        """Runs one program, after which a rank is killed."""
        if ranks == 1 or self.args.no_kill or time.monotonic() > end:
            return
        options = ["--seed", seed, "--kill", *self.args.more]
        job = Job(self.args, program, ranks, options)
        self.count(ranks, job)
        if not job.failed():
            return
        self.failures["killed: " + job.kind()].append((str(seed), ranks, ["killed"]))
        print(f"FAILED after {time.monotonic() - self.begin:.0f} s: {os.path.basename(program)} "
              f"--seed {seed} --kill on {ranks} ranks")
        for line in job.lines()[:6]:
            print(f"  {line}")
        print("  repeat: " + " ".join(job.command), flush=True)

    def names(self):
        return sorted({name for pair in self.pairs for name in pair})

    def rare(self):
        for pair in itertools.combinations(self.names(), 2):
            if self.pairs[pair] < FEW and pair not in NEVER_TOGETHER:
                yield pair

    def rarest(self):
        """A row for each feature: the number of programs with it, and the other feature with which the fewest have it."""
        names = self.names()
        rows = ["| feature | programs | fewest with | programs |", "| --- | --: | --- | --: |"]
        for name in names:
            pairs = [tuple(sorted((name, other))) for other in names if other != name]
            pair = min((pair for pair in pairs if pair not in NEVER_TOGETHER), key=lambda pair: self.pairs[pair])
            other = pair[0] if pair[1] == name else pair[1]
            rows.append(f"| `{name}` | {self.pairs[(name, name)]} | `{other}` | {self.pairs[pair]} |")
        return rows

    def save_counts(self):
        counts = {"programs": self.earlier + sum(self.programs.values()),
                  "pairs": {" ".join(pair): times for pair, times in sorted(self.pairs.items())}}
        with open(self.args.counts, "w", encoding="utf-8") as file:
            json.dump(counts, file, indent=0)

    def markdown(self):
        names = self.names()
        rows = [f"{self.earlier + sum(self.programs.values())} programs.\n", *self.rarest(), "",
                "| | " + " | ".join(str(i + 1) for i in range(len(names))) + " |",
                "| --- |" + " --: |" * len(names)]
        for i, name in enumerate(names):
            pairs = [tuple(sorted((name, other))) for other in names[:i + 1]]
            cells = ["-" if pair in NEVER_TOGETHER else str(self.pairs[pair]) for pair in pairs]
            cells += [""] * (len(names) - len(cells))
            rows.append(f"| {i + 1} {name} | " + " | ".join(cells) + " |")
        rows.append("\nPairs that no program has (-):\n")
        for (a, b), why in NEVER_TOGETHER.items():
            rows.append(f"- `{a}` and `{b}`: {why}.")
        return "\n".join(rows)

    def summary(self):
        each = ", ".join(f"{count} on {ranks}" for ranks, count in sorted(self.programs.items()))
        print(f"\n{sum(self.programs.values())} programs ({each} ranks) as expected, {self.steps} steps "
              f"of rank 0, {sum(map(len, self.failures.values()))} failures of {len(self.failures)} "
              "kinds")
        if self.launcher_crashes:
            print(f"{self.launcher_crashes} times, mpirun itself crashed after the programs had ended as "
                  "expected")
        pairs = [pair for pair in self.pairs if pair[0] != pair[1]]
        rare = list(self.rare())
        print(f"{len(pairs)} pairs of features; {len(rare)} pairs fewer than {FEW} times")
        if self.args.list_rare:
            for a, b in rare:
                print(f"  {a} and {b}: {self.pairs[(a, b)]}")
        for kind, failures in sorted(self.failures.items(), key=lambda item: -len(item[1])):
            common = set.intersection(*(set(features) for _, _, features in failures))
            seeds = " ".join(f"{seed}/np{ranks}" for seed, ranks, _ in failures[:12])
            print(f"{len(failures)} times: {kind}\n  all with: {', '.join(sorted(common)) or 'nothing'}"
                  f"\n  seeds: {seeds}")
        if self.args.counts:
            self.save_counts()
        if self.args.markdown:
            with open(self.args.markdown, "w", encoding="utf-8") as file:
                file.write(self.markdown() + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="+", help="they take turns")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1000)
    parser.add_argument("--runs", type=int, metavar="PROGRAMS", help="at most about so many")
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")],
                        default=[1, 2, 3, 4])
    parser.add_argument("--batch", type=int, default=15, help="programs per mpirun")
    parser.add_argument("--patience", type=int, default=60, help="seconds until a program hangs")
    parser.add_argument("--shrink-seconds", type=float, default=120, help="for each kind of failure")
    parser.add_argument("--without", help="features, separated by commas")
    parser.add_argument("--only", help="features, separated by commas")
    parser.add_argument("--with", dest="added", help="features that every program has")
    parser.add_argument("--first-failure", action="store_true", help="stop there")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--kolorun", help="start programs by this kolorun, without MPI")
    parser.add_argument("--markdown", help="write the table of pairs into this file")
    parser.add_argument("--counts", help="add the counts of pairs to those in this file, if it exists")
    parser.add_argument("--no-kill", action="store_true", help="kill no ranks")
    parser.add_argument("--list-rare", action="store_true", help="list the rare pairs")
    args = parser.parse_args()
    args.more = []
    if args.kolorun:
        args.without = ",".join([*NEEDS_MPI, *(args.without.split(",") if args.without else [])])
    if args.without:
        args.more += ["--without", args.without]
    if args.only:
        args.more += ["--only", args.only]
    if args.added:
        args.more += ["--with", args.added]
    campaign = Campaign(args)
    try:
        campaign.run()
    except KeyboardInterrupt:
        pass
    campaign.summary()
    return 1 if campaign.failures else 0


if __name__ == "__main__":
    sys.exit(main())
