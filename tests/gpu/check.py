#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks Kolo on a machine with a GPU, in steps of less than eight minutes.

Each command's result is written to OUTPUT/summary.json as soon as it is known, and all output to
OUTPUT/STEP.log. Commands with a result there are not run again, so a check that was stopped, or that
used up its --seconds, continues when it is called again with the same OUTPUT. Exits with 0 if all is well,
1 if a command failed, 3 if there is no GPU, and 75 if commands are left.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import rows
import steps

FAILED, NO_GPU, UNFINISHED = 1, 3, 75
KEPT_LINES = 40  # lines of a command's output in the summary
SKIPPED = 77  # a program's exit status


class Summary:
    """The results so far, in a file that is replaced atomically."""

    def __init__(self, folder, mode, again):
        self.path = folder / "summary.json"
        self.data = {"mode": mode, "steps": {}}
        if self.path.exists():
            before = json.loads(self.path.read_text())
            if before["mode"] != mode:
                sys.exit(f"gpu-check: {self.path} is of a check with mode \"{before['mode']}\", "
                         f"not \"{mode}\": name another --output")
            self.data = before
        if again:
            for commands in self.data["steps"].values():
                for name in [n for n, result in commands.items() if result["status"] == "failed"]:
                    del commands[name]

    def result(self, step, command):
        return self.data["steps"].get(step, {}).get(command)

    def add(self, step, command, result):
        self.data["steps"].setdefault(step, {})[command] = result
        self.write()

    def with_status(self, status):
        return [f"{step}/{name}" for step, commands in self.data["steps"].items()
                for name, result in commands.items() if result["status"] == status]

    def numbers(self):
        """What the benchmarks have measured."""
        return {name: number for commands in self.data["steps"].values()
                for result in commands.values()
                for name, number in result.get("numbers", {}).items()}

    def write(self, **more):
        self.data.update(more)
        for status in ("passed", "failed", "skipped"):
            self.data[status] = self.with_status(status)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.data, indent=1) + "\n")
        draft.replace(self.path)


def stop(process):
    """Kills a process and everything that it has started, including mpirun's ranks."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, what)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run(command, environment, log):
    """Runs a command, appends its output to the log, and returns the result."""
    log.write(f"\n== {command.name}: {' '.join(command.argv)}\n")
    log.flush()
    begin = time.monotonic()
    start = log.tell()
    process = subprocess.Popen(command.argv, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True,
                               env={**environment, **command.environment})
    try:
        status = process.wait(command.seconds)
    except subprocess.TimeoutExpired:
        status = None
    stop(process)
    log.seek(start)
    output = log.read()
    result = {"seconds": round(time.monotonic() - begin, 1), **judge(command, status, output)}
    if found := re.search(command.path(), output):
        result["path"] = found.group().strip()
    if numbers := rows.numbers_of(output):
        result["numbers"] = numbers
    if command.keeps_output or result["status"] == "failed":
        result["output"] = output.splitlines()[-KEPT_LINES:]
    log.seek(0, os.SEEK_END)
    log.write(f"== {command.name}: {result['status']} {result.get('reason', '')}\n")
    log.flush()
    return result


def judge(command, status, output):
    if status is None:
        return {"status": "failed", "reason": f"not done after {command.seconds} s"}
    if status == SKIPPED:
        return {"status": "skipped", "reason": (output.strip().splitlines() or [""])[-1]}
    if command.status is not None and status != command.status:
        return {"status": "failed", "reason": f"exit status {status}"}
    patterns = list(command.patterns)
    if "KOLO_GPU_OPERATIONS" in command.environment and "KOLO_LOG_LEVEL" in command.environment \
            and command.status is not None:
        patterns.append(command.path())
    for pattern in patterns:
        if not re.search(pattern, output):
            return {"status": "failed", "reason": f"no line of the output matches: {pattern}"}
    return {"status": "passed"}


class Check:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = arguments.output.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.summary = Summary(self.folder, "doubles" if arguments.dry_run else "card",
                               arguments.again)
        self.deadline = time.monotonic() + arguments.seconds
        self.left = []

    def run_step(self, step):
        with open(self.folder / f"{step.name}.log", "a+", encoding="utf-8",
                  errors="replace") as log:
            for command in step.commands:
                self.run_command(step, command, log)

    def run_command(self, step, command, log):
        result = self.summary.result(step.name, command.name)
        if result is None and command.missing():
            result = {"status": "skipped", "reason": command.missing()}
        elif result is None:
            if time.monotonic() + command.seconds > self.deadline:
                self.left.append(f"{step.name}/{command.name}")
                return
            result = run(command, self.arguments.environment, log)
        self.summary.add(step.name, command.name, result)
        print(f"{step.name:8} {command.name:24} {result['status']:8} "
              f"{result.get('seconds', 0):6.1f} s  "
              f"{result.get('reason') or result.get('path', '')}", flush=True)

    def run(self, chosen):
        for step in chosen:
            self.run_step(step)
            if step.is_required and any(name.startswith(step.name + "/")
                                        for name in self.summary.with_status("failed")):
                break
        failed = self.summary.with_status("failed")
        not_run = self.left + self.summary.with_status("skipped")
        goals = [] if self.arguments.dry_run else rows.lines(
            self.summary.numbers(), self.summary.with_status("passed"), failed, not_run)
        self.summary.write(left=self.left, goals=goals)
        for line in goals:
            print(f"goal {line}")
        print(f"gpu-check: {len(self.summary.with_status('passed'))} passed, {len(failed)} failed, "
              f"{len(self.summary.with_status('skipped'))} skipped, {len(self.left)} left; "
              f"all of it in {self.folder}")
        if failed:
            print("gpu-check: FAILED: " + ", ".join(failed))
            probe = self.summary.result("probe", "gpu") or {}
            return NO_GPU if probe.get("reason") == f"exit status {NO_GPU}" else FAILED
        return UNFINISHED if self.left else 0


def base_environment():
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1",
            "KOLO_FLIGHT_RECORDER_DIR": "off"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/gpu-check"),
                        help="folder for the summary and the logs (default: %(default)s)")
    parser.add_argument("--dry-run", action="store_true",
                        help="run the steps against doubles of CUDA and NCCL, without a GPU")
    parser.add_argument("--programs", type=pathlib.Path,
                        help="a folder with the programs; by default they are built first")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--steps", help="only these, with commas between them")
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="begin no command that may end later than this")
    parser.add_argument("--again", action="store_true", help="run again what has failed")
    parser.add_argument("--list", action="store_true", help="only print the commands")
    arguments = parser.parse_args()
    arguments.environment = base_environment()
    all_steps = steps.make(arguments)
    names = arguments.steps.split(",") if arguments.steps else [step.name for step in all_steps]
    unknown = set(names) - {step.name for step in all_steps}
    if unknown:
        sys.exit(f"gpu-check: there is no step {', '.join(sorted(unknown))}; the steps are "
                 f"{', '.join(step.name for step in all_steps)}")
    chosen = [step for step in all_steps if step.name in names]
    if arguments.list:
        for step in chosen:
            for command in step.commands:
                print(f"{step.name:8} {command.name:24} {' '.join(command.argv)}")
        return
    sys.exit(Check(arguments).run(chosen))


if __name__ == "__main__":
    main()
