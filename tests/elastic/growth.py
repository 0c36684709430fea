#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one elastic job that grows and shrinks repeatedly, and checks that its resources do not grow.

Usage: growth.py KOLORUN PROGRAM [--seconds S] [--changes N] [--csv FILE] [--ranks-per-host N]

A host of two ranks stays, with a sharded optimizer. A discovery script lists another host with one or two slots, and
then does not: N growths and N shrinks, of which each must be in good order, so that no step is lost. After each shrink,
the resident memory, the descriptors and the threads of kolorun, of the staying host's agent and of its ranks are
measured. After a tenth of the changes as a warm-up, the maximum of the last third may exceed that of the third after
the warm-up by 2 MiB, and by no descriptor, thread or process. At the end the parameters must equal a replay of all
steps in one process. Exit status 1 if not.
"""
import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time

from jobs import Job, write_csv

PATIENCE = 60  # seconds for a change
ALLOWED = {"resident_kib": 2048, "descriptors": 0, "threads": 0}
FIELDS = ["ranks_per_host", "process", "growths", *ALLOWED]
SESSION = re.compile(r"^session of ([0-9]+) ranks", re.MULTILINE)
STEADY = 2  # ranks
LOOKS = 20  # in a second


class Failure(Exception):
    pass


def look_at(process):
    """The minimum of several counts, because kolorun has pipes to the discovery script and to agents that are just ending."""
    looks = []
    for _ in range(LOOKS):
        fields = process.fields()
        looks.append((int(fields["VmRSS"].split()[0]), process.descriptors(), int(fields["Threads"])))
        time.sleep(0.05)
    return [min(values) for values in zip(*looks)]


class Growing:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.set_hosts(0)
        options = ["until_file=1", "pause_ms=5", "commit_every=5", "sharded=1", "exact=1"]
        environment = {"KOLO_TEST_RANKS_PER_HOST": str(args.ranks_per_host)} if args.ranks_per_host else {}
        self.job = Job([args.kolorun, "-np", str(STEADY), "--min-np", str(STEADY), "--max-np", "4",
                        "--cooldown", "0.1:1", "--network-interface", "lo",
                        "--host-discovery-script", f"cat {folder}/hosts", args.program, folder, *options],
                       environment, folder)
        self.sessions = 0
        self.rows = []  # process, growths, measured values
        self.processes = None

    def set_hosts(self, slots):
        with open(f"{self.folder}/hosts.new", "w") as file:
            file.write(f"steady:{STEADY}\n" + (f"changing:{slots}\n" if slots else ""))
        os.rename(f"{self.folder}/hosts.new", f"{self.folder}/hosts")

    def wait_for(self, ranks):
        """Waits for a session newer than the last one, with the given number of ranks."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            sessions = SESSION.findall(self.job.output())
            if len(sessions) > self.sessions and int(sessions[-1]) == ranks:
                self.sessions = len(sessions)
                return
            if self.job.process.poll() is not None:
                raise Failure(f"the job has ended with status {self.job.process.returncode}")
            time.sleep(0.05)
        raise Failure(f"no session of {ranks} ranks within {PATIENCE} s")

    def wait_for_end_of_changing(self):
        """Waits for the end of removed processes, which is soon after the next session has begun."""
        until = time.monotonic() + PATIENCE
        while any(each.environment().get("FAKE_HOST") == "changing" for each in self.job.processes()):
            if time.monotonic() > until:
                raise Failure(f"processes are left: {[each.words('cmdline') for each in self.job.processes()]}")
            time.sleep(0.1)

    def staying(self):
        """The processes that remain throughout, by name."""
        own = {}
        ranks = 0
        for process in sorted(self.job.processes(), key=lambda each: each.pid):
            if process.pid == self.job.process.pid:
                own["kolorun"] = process
            elif process.environment().get("FAKE_HOST") != "steady":
                continue  # the discovery script
            elif "--agent" in process.words("cmdline"):
                own["agent"] = process
            else:
                own[f"rank {ranks}"] = process
                ranks += 1
        return own

    def measure(self, growths):
        own = self.staying()
        pids = {name: process.pid for name, process in own.items()}
        if self.processes is None:
            if len(pids) != STEADY + 2:
                raise Failure(f"these processes stay: {pids}")
            self.processes = pids
        if pids != self.processes:
            raise Failure(f"other processes stay: {self.processes}, and later {pids}")
        for name, process in own.items():
            self.rows.append([name, growths, *look_at(process)])

    def run(self):
        self.wait_for(STEADY)
        draw = random.Random(self.args.seed)
        begin, dwell = time.monotonic(), self.args.seconds / (2 * self.args.changes)
        for change in range(1, self.args.changes + 1):
            for slots in (draw.randint(1, 2), 0):
                due = begin + ((2 * change - 1) if slots == 0 else (2 * change - 2)) * dwell
                time.sleep(max(0.0, due - time.monotonic()))
                self.set_hosts(slots)
                self.wait_for(STEADY + slots)
            self.wait_for_end_of_changing()
            self.measure(change)
            if self.args.verbose:
                print(*self.rows[-len(self.processes):], flush=True)
        open(f"{self.folder}/end", "w").close()
        try:
            status = self.job.process.wait(PATIENCE + self.args.seconds / 2)  # for the replay
        except Exception as late:
            raise Failure("the job does not end") from late
        if status != 0 or "as replayed" not in self.job.output():
            raise Failure(f"status {status} at the end")
        if lost := [line for line in self.job.output().splitlines() if "the session is over" in line]:
            raise Failure(f"a change in disorder: {lost[:3]}")
        if left := self.job.left():
            raise Failure(f"left: {left}")

    def judge(self):
        """Returns what has grown."""
        warm_up, last = self.args.changes / 10, self.args.changes * 2 / 3
        grown = []
        for name in self.processes:
            for i, (field, allowed) in enumerate(ALLOWED.items()):
                values = [(growths, row[i]) for who, growths, *row in self.rows if who == name]
                early = max(value for growths, value in values if warm_up < growths <= max(warm_up + 1, last / 2))
                late = max(value for growths, value in values if growths > last)
                if late > early + allowed:
                    grown.append(f"{name}: {field} {early}, and later {late}")
        return grown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--changes", type=int, help="growths, and as many shrinks; default: one in 36 s, at least 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks-per-host", type=int, default=0, help="emulate hosts of so many ranks; 0: one host")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as at the end, end the job
    args.changes = args.changes or max(3, round(args.seconds / 36))
    with tempfile.TemporaryDirectory(prefix="kolo-growth-") as folder:
        growing = Growing(args, folder)
        try:
            growing.run()
            problems = growing.judge()
        except Failure as failure:
            problems = [str(failure)]
            print(growing.job.output()[-20000:])
        finally:
            growing.job.end()
        if args.csv:
            write_csv(args.csv, FIELDS, [[args.ranks_per_host or "all", *row] for row in growing.rows])
        print(*[line for line in growing.job.output().splitlines() if "as replayed" in line][:1])
    for name in growing.processes or ():
        own = [row for row in growing.rows if row[0] == name]
        print(f"{name}: " + ", ".join(f"after {row[1]} growths {row[2]} KiB, {row[3]} descriptors, {row[4]} threads"
                                      for row in (own[0], own[len(own) // 2], own[-1])))
    print(f"{args.changes} growths and {args.changes} shrinks: " + ("; ".join(problems) or "nothing grows"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
