# SPDX-License-Identifier: Apache-2.0
"""Runs kolorun, finds what a job has left behind, and records results."""
import csv
import os
import signal
import subprocess
import time
import uuid

MARK = "KOLO_TEST_JOB"  # in the environment of all processes of a job
# In place of ssh: the command runs on this host, with an environment of its own. OpenBLAS must choose the same kernels
# everywhere: results are compared bit by bit.
RSH = """#!/bin/sh
host=$1
shift
exec {prefix} env -i PATH="$PATH" $(env | grep ^OPENBLAS_) {mark}={job} FAKE_HOST="$host" sh -c "exec $*"
"""


class Process:
    """A process, from /proc."""

    def __init__(self, pid):
        self.pid = pid

    def read(self, name):
        try:
            with open(f"/proc/{self.pid}/{name}", "rb") as file:
                return file.read()
        except OSError:
            return b""

    def words(self, name):
        return self.read(name).decode(errors="replace").split("\0")

    def environment(self):
        return dict(word.split("=", 1) for word in self.words("environ") if "=" in word)

    def fields(self):
        return dict(line.split(":", 1) for line in self.read("status").decode().splitlines() if ":" in line)

    def is_stopped(self):
        return b") T " in self.read("stat")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def describe(self):
        waits = {open(f"/proc/{self.pid}/task/{each}/wchan").read() for each in os.listdir(f"/proc/{self.pid}/task")}
        return f"{self.pid} {self.fields()['State'].strip()} {' '.join(self.words('cmdline'))[:150]}: {' '.join(waits)}"


class Job:
    """kolorun in a session of its own; its output goes to a file."""

    def __init__(self, command, environment, folder, prefix=(), far_prefix=()):
        self.name = uuid.uuid4().hex
        self.log = f"{folder}/log"
        self.segments = set(os.listdir("/dev/shm"))
        rsh = f"{folder}/rsh"
        with open(rsh, "w") as file:
            file.write(RSH.format(mark=MARK, job=self.name, prefix=" ".join(far_prefix)))
        own = {MARK: self.name, "KOLO_RSH": f"sh {rsh}", "KOLO_FLIGHT_RECORDER_DIR": "off", "OMP_NUM_THREADS": "1"}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([*prefix, *command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            env={**os.environ, **own, **environment})

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def processes(self):
        """The processes that still run."""
        mark = f"{MARK}={self.name}".encode()
        all_of_them = [Process(int(each)) for each in os.listdir("/proc") if each.isdigit()]
        return [each for each in all_of_them
                if mark in each.read("environ").split(b"\0") and b") Z " not in each.read("stat")]

    def left(self, patience=1.0):
        """Descriptions of processes and of shared memory that are left after the end of kolorun."""
        until = time.monotonic() + patience
        while self.processes() and time.monotonic() < until:
            time.sleep(0.02)
        left = [describe(each) for each in self.processes()]
        new = set(os.listdir("/dev/shm")) - self.segments
        return left + [f"/dev/shm/{each}" for each in new if each.startswith("kolo")]

    def end(self):
        """Kills all processes of the job."""
        for each in self.processes():
            try:
                os.kill(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def describe(process):
    try:
        return process.describe()
    except OSError:
        return f"{process.pid}, which has just ended"


def write_csv(path, fields, rows):
    """Replaces a table. The comments of the file stay."""
    comments = []
    if os.path.exists(path):
        with open(path) as file:
            comments = [line for line in file if line.startswith("#")]
    with open(path, "w", newline="") as file:
        file.writelines(comments)
        csv.writer(file, lineterminator="\n").writerows([fields, *rows])
