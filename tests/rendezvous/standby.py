#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills the rendezvous server of jobs, or cuts off its host, and measures the time to the next training step.

Usage: standby.py KOLORUN STANDBY_PROGRAM DIRECTORY [--rounds N] [--only CASE]

Three hosts made of network namespaces at one switch. The first has the server, the second the standby. Needs root;
ends with status 77 without network namespaces.
"""
import argparse
import os
import re
import secrets
import signal
import shutil
import statistics
import subprocess
import sys
import time

LEASE = 5.0  # seconds
STEP = re.compile(r"^step (\d+) rank (\d+) of (\d+) at ([0-9.]+)$", re.MULTILINE)
PATIENCE = 90.0  # seconds until a test gives a job up
SUBNET = "10.213.80"


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Hosts:
    """Namespaces at a bridge. A cut cable is a port of the bridge that is down, so that the host notices nothing."""

    def __init__(self, count):
        self.switch = f"kolo-switch-{os.getpid()}"
        self.names = [f"kolo-standby-{number}-{os.getpid()}" for number in range(1, count + 1)]
        ip("netns", "add", self.switch)
        try:
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for number, name in enumerate(self.names, 1):
                ip("netns", "add", name)
                ip("-n", name, "link", "add", "wire", "type", "veth", "peer", "name", f"port{number}", "netns",
                   self.switch)
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "address", "add", f"{SUBNET}.{number}/24", "dev", "wire")
                ip("-n", name, "link", "set", "wire", "up")
                ip("-n", self.switch, "link", "set", f"port{number}", "master", "bridge", "up")
        except BaseException:
            self.remove()
            raise

    def cut(self, number):
        ip("-n", self.switch, "link", "set", f"port{number}", "down")

    def mend_all(self):
        for number in range(1, len(self.names) + 1):
            ip("-n", self.switch, "link", "set", f"port{number}", "up")

    def pids(self, names):
        found = []
        for name in names:
            listed = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
            found += [int(pid) for pid in listed.stdout.split()]
        return found

    def kill_all(self, *names):
        for pid in self.pids(names or self.names):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def remove(self):
        self.kill_all()
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


class Failure(Exception):
    pass


class Job:
    """One kolorun on each host. `slots`: by host."""

    def __init__(self, setting, slots, options):
        self.hosts, self.folder, self.program = setting.hosts, setting.folder, setting.program
        self.end_file = f"{self.folder}/end"
        if os.path.exists(self.end_file):
            os.remove(self.end_file)
        self.kolorun, self.options = setting.kolorun, options
        self.runs, self.logs = {}, {}
        for number, count in enumerate(slots, 1):
            self.start(number, count)

    def start(self, number, slots):
        log = f"{self.folder}/host{number}.log"
        command = [self.kolorun, "--rendezvous", f"{SUBNET}.1:4711", "--standby", f"{SUBNET}.2:4712", "--secret-file",
                   f"{self.folder}/secret", "--network-interface", "wire", "--lease", str(LEASE), "--grace", "1", "-v",
                   "--slots", str(slots), *self.options, self.program, self.end_file]
        with open(log, "w", encoding="utf8") as file:
            self.runs[number] = subprocess.Popen(
                ["ip", "netns", "exec", self.hosts.names[number - 1], "unshare", "--uts", "sh", "-c",
                 f'hostname host{number}; exec "$@"', "sh", *command],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.logs[number] = log

    def text(self, number):
        with open(self.logs[number], encoding="utf8", errors="replace") as file:
            return file.read()

    def all_text(self):
        text = ""
        for number in self.logs:
            lines = self.text(number).splitlines()
            steps = [line for line in lines if line.startswith("step ")]
            text += "\n".join([f"---- host {number}", *(line for line in lines if not line.startswith("step ")),
                               *steps[-2:], ""])
        return text

    def steps(self):
        """(time, step, size) of all ranks."""
        found = []
        for number in self.logs:
            found += [(float(at), int(step), int(size)) for step, _, size, at in STEP.findall(self.text(number))]
        return sorted(found)

    def wait_for(self, what, condition):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            result = condition()
            if result:
                return result
            time.sleep(0.02)
        raise Failure(f"{what}: not within {PATIENCE:.0f} s\n{self.all_text()}")

    def wait_for_size(self, size, after=0.0):
        return self.wait_for(f"a step of {size} ranks", lambda: next(
            (step for step in self.steps() if step[2] == size and step[0] > after), None))

    def says(self, number, pattern):
        return self.wait_for(f"host {number} says '{pattern}'", lambda: re.search(pattern, self.text(number)))

    def now(self):
        return float(subprocess.run([self.program, "--now"], check=True, capture_output=True, text=True).stdout)

    def kill(self, number):
        self.runs[number].kill()

    def kill_host(self, number):
        self.hosts.kill_all(self.hosts.names[number - 1])

    def end(self, statuses):
        """Ends the training, and compares the exit statuses by host."""
        with open(self.end_file, "w", encoding="utf8"):
            pass
        self.expect(statuses)

    def expect(self, statuses):
        for number, status in statuses.items():
            try:
                found = self.runs[number].wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise Failure(f"the kolorun of host {number} does not end\n{self.all_text()}") from None
            if found != status:
                raise Failure(f"host {number} ends with {found} instead of {status}\n{self.all_text()}")


ELASTIC = ["-np", "3", "--min-np", "1", "--max-np", "3", "--cooldown", "0.2:1"]
FIXED = ["-np", "2"]


def fault_at(job, size, fault):
    """The time of the fault, after steps of so many ranks."""
    job.wait_for_size(size)
    begin = job.now()
    fault()
    return begin


def longest_pause(job, begin):
    """The longest time between two steps, from the last one before the fault on."""
    times = {}
    for at, step, size in job.steps():
        times[step, size] = min(at, times.get((step, size), at))
    done = sorted(times.values())
    return max(after - before for before, after in zip(done, done[1:]) if after > begin)


def goes_on(job, size):
    """Waits until the job makes steps after the standby has taken over."""
    job.says(2, "has taken over")
    job.wait_for_size(size, after=job.now() + 1.0)


def serving_host_killed(setting):
    job = Job(setting, [0, 1, 1], FIXED)
    begin = fault_at(job, 2, lambda: job.kill(1))
    goes_on(job, 2)
    job.end({2: 0, 3: 0})
    return longest_pause(job, begin), 5.0


def serving_host_cut(setting):
    job = Job(setting, [0, 1, 1], FIXED)
    begin = fault_at(job, 2, lambda: setting.hosts.cut(1))
    goes_on(job, 2)
    job.expect({1: 1})
    job.says(1, "the standby may have taken over")
    job.end({2: 0, 3: 0})
    return longest_pause(job, begin), LEASE + 5.0


def elastic_killed(setting):
    job = Job(setting, [1, 1, 1], ELASTIC)
    begin = fault_at(job, 3, lambda: job.kill(1))
    goes_on(job, 2)
    # The standby also replaces a rank that is lost later.
    seconds = longest_pause(job, begin)
    lost = subprocess.run(["ip", "netns", "pids", setting.hosts.names[2]], check=True, capture_output=True, text=True)
    for pid in lost.stdout.split():
        with open(f"/proc/{pid}/comm", encoding="utf8") as file:
            if file.read().startswith("standby_program"[:15]):
                os.kill(int(pid), signal.SIGKILL)
    job.says(2, "generation 2 is over")
    job.wait_for_size(2, after=job.now())
    # A kolorun that starts at the address of the first server joins the job.
    job.start(1, 1)
    job.wait_for_size(3, after=job.now())
    job.end({1: 0, 2: 0, 3: 0})
    return seconds, 5.0


def elastic_cut(setting):
    job = Job(setting, [1, 1, 1], ELASTIC)
    begin = fault_at(job, 3, lambda: setting.hosts.cut(1))
    goes_on(job, 2)
    job.expect({1: 1})
    job.says(1, "the standby may have taken over")
    setting.hosts.mend_all()
    job.wait_for_size(2, after=job.now())
    job.end({2: 0, 3: 0})
    return longest_pause(job, begin), LEASE + 5.0


def elastic_restarted(setting):
    """A host that was down for less than the standby waits joins the job, and begins no other one."""
    job = Job(setting, [1, 1, 1], [*ELASTIC, "--start-timeout", "15"])
    begin = fault_at(job, 3, lambda: setting.hosts.cut(1))
    job.kill_host(1)
    job.wait_for("half of the lease", lambda: job.now() > begin + LEASE / 2 + 1.0)
    setting.hosts.mend_all()
    job.start(1, 1)
    job.says(2, "has taken over")
    job.wait_for_size(3, after=begin + LEASE / 2 + 1.0)
    job.end({1: 0, 2: 0, 3: 0})
    if re.search(r"of 1 at", job.text(1)):
        raise Failure(f"the host that came back has begun the job once more\n{job.all_text()}")
    return None, None


def two_hosts_cut(setting):
    """Half of the hosts with the standby are enough, and half with the server are not."""
    job = Job(setting, [1, 1], ["-np", "2", "--min-np", "1", "--max-np", "2", "--cooldown", "0.2:1"])
    begin = fault_at(job, 2, lambda: setting.hosts.cut(1))
    goes_on(job, 1)
    job.expect({1: 1})
    if re.search(r"of 1 at", job.text(1)):
        raise Failure(f"the host that was cut off has gone on alone\n{job.all_text()}")
    seconds = longest_pause(job, begin)
    # A signal to the kolorun that serves ends the job.
    job.runs[2].terminate()
    job.expect({2: 128 + signal.SIGTERM})
    return seconds, LEASE + 5.0


def standby_cut(setting):
    """The server keeps more than half of the hosts, and the standby does not take over."""
    job = Job(setting, [1, 1, 1], ELASTIC)
    begin = fault_at(job, 3, lambda: setting.hosts.cut(2))
    job.says(2, "the standby at .* is to take over")
    job.wait_for_size(2, after=job.now())
    seconds = longest_pause(job, begin)
    setting.hosts.mend_all()
    job.wait_for_size(3, after=job.now())
    job.end({1: 0, 2: 0, 3: 0})
    if "has taken over" in job.text(2):
        raise Failure(f"the standby has taken over\n{job.all_text()}")
    return seconds, LEASE + 5.0


def fixed_with_ranks(setting):
    """A job that is not elastic ends with the host that has the server and ranks, and says so."""
    job = Job(setting, [1, 1, 1], ["-np", "3"])
    job.wait_for_size(3)
    job.kill(1)
    job.expect({2: 1, 3: 1})
    job.says(2, "the host of rank 0 is lost")
    return None, None


CASES = {
    "a server without ranks is killed": serving_host_killed,
    "a server without ranks is cut off": serving_host_cut,
    "an elastic job, whose server is killed": elastic_killed,
    "an elastic job, whose server is cut off": elastic_cut,
    "an elastic job, whose server's host comes back at once": elastic_restarted,
    "two hosts, of which the first is cut off": two_hosts_cut,
    "the standby is cut off": standby_cut,
    "a job that is not elastic loses ranks": fixed_with_ranks,
}


class Setting:
    def __init__(self, arguments, hosts):
        self.hosts, self.folder = hosts, arguments.directory
        self.kolorun, self.program = arguments.kolorun, arguments.program


def run_case(name, case, setting, rounds):
    taken, limit, failed = [], None, 0
    for number in range(rounds):
        try:
            seconds, limit = case(setting)
            if seconds is not None:
                taken.append(seconds)
                if seconds > limit:
                    raise Failure(f"there was no step for {seconds:.1f} s, and the limit is {limit:.0f} s")
        except Failure as failure:
            failed += 1
            print(f"FAILED {name}, round {number + 1}: {failure}", flush=True)
        setting.hosts.mend_all()
        setting.hosts.kill_all()
    times = (f"; longest pause between steps {statistics.median(taken):.2f} s in the median, "
             f"{max(taken):.2f} s at most (limit {limit:.0f} s)") if taken else ""
    print(f"{name}: {rounds - failed} of {rounds} as expected{times}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kolorun")
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.directory, ignore_errors=True)
    os.makedirs(arguments.directory)
    with open(os.open(f"{arguments.directory}/secret", os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf8") as file:
        file.write(secrets.token_hex(32))
    os.environ["KOLO_FLIGHT_RECORDER_DIR"] = "off"
    try:
        hosts = Hosts(3)
    except (OSError, subprocess.CalledProcessError):
        print("no network namespaces here")
        return 77
    try:
        setting = Setting(arguments, hosts)
        failed = sum(run_case(name, case, setting, arguments.rounds) for name, case in CASES.items()
                     if arguments.only in name)
    finally:
        hosts.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
