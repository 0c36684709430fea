#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills programs that save checkpoints, at random moments, and loads what they have left.

What counted before the kill, or something later, must be loaded, on any number of ranks, and each element must be that
of its step. Nothing may remain but one checkpoint.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

WAIT = 60  # seconds


class Failure(Exception):
    pass


def children_of(pid):
    """The processes that descend from this one."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        direct = [int(child) for child in file.read().split()]
    return direct + [below for child in direct for below in children_of(child)]


def steps_in(path, what):
    with open(path) as file:
        return [int(line.split()[1]) for line in file if line.startswith(what + " ") and line.endswith("\n")]


class Folder:
    """A folder of checkpoints, in which one program after the other saves and is killed."""

    def __init__(self, args, number):
        self.args = args
        self.path = os.path.join(args.folder, str(number))
        self.output = self.path + ".log"
        self.counted = 0

    def command(self, ranks, saves):
        return [self.args.kolorun, "-np", str(ranks), self.args.program, self.path, str(self.counted), str(saves)]

    def kill_one(self, draw):
        """Starts a program, and kills all its ranks, or one."""
        ranks = draw.randint(1, 4)
        with open(self.output, "w") as output:
            job = subprocess.Popen(self.command(ranks, 10**9), stdout=output, stderr=subprocess.STDOUT)
        until = time.monotonic() + WAIT
        while not steps_in(self.output, "loaded"):
            if job.poll() is not None or time.monotonic() > until:
                raise Failure(f"{ranks} ranks do not load")
            time.sleep(0.01)
        time.sleep(draw.expovariate(1 / 0.1))
        victims = children_of(job.pid)
        if draw.random() < 0.5:
            victims = [draw.choice(victims)]
        for victim in victims:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            job.wait(WAIT)
        except subprocess.TimeoutExpired:
            job.kill()
            raise Failure(f"the job does not end after {len(victims)} of its processes were killed") from None
        self.counted = max([self.counted, *steps_in(self.output, "counts")])
        return ranks

    def load(self, ranks):
        done = subprocess.run(self.command(ranks, 1), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=WAIT, check=False)
        if done.returncode != 0:
            raise Failure(f"{ranks} ranks end with status {done.returncode}:\n{done.stdout}")
        left = sorted(os.listdir(self.path))
        if len(left) != 1:
            raise Failure(f"the folder has {left}")
        self.counted = max(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("counts "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    os.environ["KOLO_FLIGHT_RECORDER_DIR"] = "off"
    failed = 0
    between = 0
    with tempfile.TemporaryDirectory(prefix="kolo-saves-") as args.folder:
        folder = Folder(args, 0)
        for kill in range(args.kills):
            draw = random.Random(args.seed + kill)
            try:
                ranks = folder.kill_one(draw)
                between += any(name.endswith(".part") for name in os.listdir(folder.path))
                if draw.random() < 0.5:
                    folder.load(draw.randint(1, 4))
            except (Failure, subprocess.TimeoutExpired) as failure:
                failed += 1
                print(f"seed {args.seed + kill}: {failure}")
                with open(folder.output) as output:
                    print(output.read()[-3000:])
                shutil.copytree(folder.path, f"saves-failed-{args.seed + kill}", dirs_exist_ok=True)
                folder = Folder(args, kill + 1)
            else:
                print(f"seed {args.seed + kill}: {ranks} ranks, step {folder.counted}", flush=True)
    print(f"{args.kills} kills, {between} of them in the middle of a save, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
