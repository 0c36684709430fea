# SPDX-License-Identifier: Apache-2.0
"""Two hosts made of network namespaces, and the cable between them. Needs root."""
import os
import subprocess


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Networks:
    def __init__(self):
        self.first, self.second = (f"kolo-elastic-{each}-{os.getpid()}" for each in ("a", "b"))
        ip("netns", "add", self.first)
        try:
            ip("netns", "add", self.second)
            ip("-n", self.first, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", self.second)
            for number, host in ((1, self.first), (2, self.second)):
                ip("-n", host, "link", "set", "lo", "up")
                ip("-n", host, "address", "add", f"10.213.79.{number}/24", "dev", "wire")
                ip("-n", host, "link", "set", "wire", "up")
        except BaseException:
            self.remove()
            raise

    def set_cable(self, state):
        ip("-n", self.second, "link", "set", "wire", state)

    def on_first(self):
        return ["ip", "netns", "exec", self.first]

    def on_second(self):
        return ["ip", "netns", "exec", self.second]

    def remove(self):
        for host in (self.first, self.second):
            subprocess.run(["ip", "netns", "delete", host], check=False, stderr=subprocess.DEVNULL)


def make_networks():
    """Creates the hosts; None without network namespaces on this machine."""
    try:
        return Networks()
    except (OSError, subprocess.CalledProcessError):
        return None
