#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs elastic_program again and again, with other faults each time, and judges.

Usage: campaign.py KOLORUN PROGRAM [--faults N] [--seed S] [--verbose]

Every run follows from its seed. A run must end with status 0 and the words "as replayed": its parameters equal those of a
replay of its steps in one process, and each example was used once per epoch. Prints how long it took from a fault to the
end of the next step. Exit status 1 if a run failed.
"""
import argparse
import collections
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

KINDS = ["kill", "kill", "exit", "throw", "leave"]
PHASES = ["start", "step", "save", "load", "rejoin", "reset", "restart"]
PATIENCE = 60  # seconds
RECOVERED = re.compile(r"^next step ([0-9.]+) ms after a fault$", re.MULTILINE)


def make_run(seed):
    """Options of kolorun and of the program, and the faults."""
    choose = random.Random(seed)
    ranks = choose.randint(2, 4)
    faults = []
    # One rank remains. Most faults need a session after another one, so most runs begin with a loss in a step.
    for i in range(choose.randint(1, ranks - 1)):
        phase = "step" if i == 0 and choose.random() < 0.6 else choose.choice(PHASES)
        kind = "kill" if phase in ("start", "restart") else choose.choice(KINDS)
        step = choose.randint(0, 20000) if phase == "restart" else choose.choice([0, 0, choose.randint(1, 12)])
        faults.append(f"{kind}:{phase}:{choose.randrange(ranks - i)}:{step}")
    # A process that ends before its first session must be started again.
    comes_back = any(":start:" in fault for fault in faults) or choose.random() < 0.3
    cooldown = "0.05:0.05" if comes_back else "1000:1000"
    return (["-np", str(ranks), "--min-np", "1", "--cooldown", cooldown],
            [f"commit_every={choose.randint(1, 4)}", f"pause_ms={choose.choice([0, 0, 1, 3])}"], faults)


def run(args, seed):
    launch, options, faults = make_run(seed)
    with tempfile.TemporaryDirectory() as folder:
        command = [args.kolorun, *launch, args.program, folder, *options, *(f"fault={each}" for each in faults)]
        environment = {**os.environ, "KOLO_FLIGHT_RECORDER_DIR": "off", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=PATIENCE, env=environment, check=False)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = "none: it hangs", (late.stdout or b"").decode(errors="replace")
        happened = [each for i, each in enumerate(faults) if os.path.exists(f"{folder}/fault.{i}")]
    good = status == 0 and "as replayed" in output
    if args.verbose or not good:
        print(f"seed {seed}: status {status}: {' '.join(command)}")
    if not good:
        print(output)
    return good, happened, [float(each) for each in RECOVERED.findall(output)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    failed, runs, counts, times = 0, 0, collections.Counter(), []
    for seed in range(args.seed, sys.maxsize):
        if sum(counts.values()) >= args.faults:
            break
        good, happened, recovered = run(args, seed)
        failed += not good
        counts.update((fault.split(":")[1], fault.split(":")[0]) for fault in happened)
        times += recovered
        runs += 1
    kinds = list(dict.fromkeys(KINDS))
    print("| phase | " + " | ".join(kinds) + " |\n| --- |" + " ---: |" * len(kinds))
    for phase in PHASES:
        print(f"| {phase} | " + " | ".join(str(counts[phase, kind]) for kind in kinds) + " |")
    if times:
        times.sort()
        print(f"{runs} runs, {sum(counts.values())} faults; from a fault to the end of the next step: median "
              f"{statistics.median(times):.0f} ms, 95 % within {times[int(0.95 * (len(times) - 1))]:.0f} ms, at most "
              f"{times[-1]:.0f} ms")
    print(f"{failed} runs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
