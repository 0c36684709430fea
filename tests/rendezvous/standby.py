#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills the rendezvous server of jobs, or cuts off its host, and measures the time to the next training step.

Usage: standby.py KOLORUN STANDBY_PROGRAM DIRECTORY [--rounds N] [--only CASE]

Five hosts made of network namespaces at one switch. The first has the server, the second the standby. Needs root;
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

from standby_jobs import LEASE, Failure, Hosts, Job


def elastic(ranks, grace=1):
    return ["-np", str(ranks), "--min-np", "1", "--max-np", str(ranks), "--cooldown", "0.2:1", "--grace", str(grace)]


ELASTIC = elastic(3)
FIXED = ["-np", "2", "--grace", "1"]


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


def fail_if_alone(job):
    if re.search(r"of 1 at", job.text(1)):
        raise Failure(f"the host that has lost the others has gone on alone\n{job.all_text()}")


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
    job = Job(setting, [1, 1], elastic(2))
    begin = fault_at(job, 2, lambda: setting.hosts.cut(1))
    goes_on(job, 1)
    job.expect({1: 1})
    fail_if_alone(job)
    seconds = longest_pause(job, begin)
    # A signal to the kolorun that serves ends the job.
    job.runs[2].terminate()
    job.expect({2: 128 + signal.SIGTERM})
    return seconds, LEASE + 5.0


def elastic_suspended(setting):
    """A server that could not see the time pass has lost the job, too."""
    job = Job(setting, [1, 1, 1], ELASTIC)
    begin = fault_at(job, 3, lambda: job.runs[1].send_signal(signal.SIGSTOP))
    goes_on(job, 2)
    job.runs[1].send_signal(signal.SIGCONT)
    job.expect({1: 1})
    fail_if_alone(job)
    job.end({2: 0, 3: 0})
    return longest_pause(job, begin), LEASE + 5.0


def unequal_cut(setting):
    """The server still reaches the standby's host, which is not to end with it."""
    job = Job(setting, [1, 1, 1, 1, 1], elastic(5))
    begin = fault_at(job, 5, lambda: [setting.hosts.cut_from_first(number) for number in (3, 4, 5)])
    goes_on(job, 4)
    job.expect({1: 1})
    fail_if_alone(job)
    job.end({2: 0, 3: 0, 4: 0, 5: 0})
    return longest_pause(job, begin), 2 * LEASE + 5.0


def stopped_meanwhile(setting):
    """SIGTERM to the kolorun of a standby that has not taken over yet: all ranks stop in good order."""
    job = Job(setting, [1, 1, 1], [*elastic(3, grace=60), "-x", "STANDBY_PROGRAM_STOPS=1"])
    # All ranks have asked for stops once one is at its third step. Before that SIGTERM ends a rank.
    job.wait_for("a third step", lambda: any(step >= 3 for _, step, _ in job.steps()))
    setting.hosts.cut(1)
    job.says(2, "the standby at .* is to take over")
    job.runs[2].terminate()
    job.expect({2: 0, 3: 0})
    for number in (2, 3):
        job.says(number, "done: rank")
    return None, None


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
    job = Job(setting, [1, 1, 1], ["-np", "3", "--grace", "1"])
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
    "an elastic job, whose server is suspended": elastic_suspended,
    "five hosts, of which the first reaches only the standby's": unequal_cut,
    "a stop while the standby takes over": stopped_meanwhile,
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
        hosts = Hosts(5)
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
