# SPDX-License-Identifier: Apache-2.0
"""Hosts made of network namespaces, and jobs on them with a standby."""
import os
import re
import signal
import subprocess
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

    def cut_from_first(self, number):
        ip("-n", self.names[0], "route", "add", "blackhole", f"{SUBNET}.{number}/32")

    def mend_all(self):
        ip("-n", self.names[0], "route", "flush", "type", "blackhole")
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
                   f"{self.folder}/secret", "--network-interface", "wire", "--lease", str(LEASE), "-v",
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
