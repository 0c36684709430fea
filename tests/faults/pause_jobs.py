# SPDX-License-Identifier: Apache-2.0
"""The jobs that run_pauses.py suspends, and what it can see of them."""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "elastic"))
from jobs import Job
from pause_judge import SESSION, reports
from pauses import PHASES

LEASE = 8  # seconds after which a host of an elastic job is lost


class PlainJob:
    """A job of pause_program."""

    def __init__(self, args, plan, folder):
        self.plan, self.folder = plan, folder
        launch = [args.mpirun] if plan.launcher == "mpirun" else [args.kolorun]
        environment = {"KOLO_STALL_WARNING": str(0.6 * args.limit), "KOLO_STALL_SHUTDOWN": str(plan.limit),
                       "KOLO_PEER_TIMEOUT": str(0.4 * args.limit)}
        if plan.per_host:
            environment["KOLO_TEST_RANKS_PER_HOST"] = str(plan.per_host)
        self.job = Job([*launch, "-np", str(plan.ranks), args.program, folder, str(plan.seed)], environment, folder)

    def read(self, rank):
        """Process id, number of steps, phase."""
        try:
            with open(f"{self.folder}/rank.{rank}", "rb") as file:
                return struct.unpack("qqq", file.read(24))
        except (OSError, struct.error):
            return 0, 0, 0

    def pids(self):
        return {rank: self.read(rank)[0] for rank in range(self.plan.ranks)}

    def processes_of_host(self, ranks):
        return [self.pids()[rank] for rank in ranks]

    def is_in(self, phase, rank):
        return self.read(rank)[2] == PHASES.index(phase)

    def progress(self):
        return [self.read(rank)[1] for rank in range(self.plan.ranks)]

    def goes_on(self, before):
        """After an error of a session the ranks have steps behind them too, so two more count."""
        return all(now > then + 2 for now, then in zip(self.progress(), before))

    def ends_well(self, output):
        return output.count(" ends well\n") == self.plan.ranks


class ElasticJob:
    """A job of elastic_program. Hosts are agents that kolorun starts in place of ssh."""

    def __init__(self, args, plan, folder):
        self.plan, self.folder = plan, folder
        launch = ["-np", str(plan.ranks), "--min-np", "1", "--cooldown", "0.2:1"]
        if plan.per_host:
            launch += ["-H", f"near:{plan.per_host},far:{plan.per_host}", "--network-interface", "lo",
                       "--lease", str(LEASE)]
        environment = {"KOLO_STALL_WARNING": str(0.6 * args.limit), "KOLO_STALL_SHUTDOWN": str(plan.limit)}
        options = ["until_file=1", "load_for=1", f"pause_ms={random.Random(plan.seed).choice([2, 5])}"]
        if plan.seed % 2 == 1:
            options.append("sharded=1")
        self.job = Job([args.kolorun, *launch, args.elastic, folder, *options], environment, folder)
        self.begun = 0  # size of the output before the last loss

    def pids(self):
        pids = {}
        for rank in range(self.plan.ranks):
            try:
                with open(f"{self.folder}/rank.{rank}") as file:
                    pids[rank] = int(file.read() or 0)
            except OSError:
                pids[rank] = 0
        return pids

    def processes_of_host(self, ranks):
        """With the agent."""
        host = next((each.environment().get("FAKE_HOST") for each in self.job.processes()
                     if each.pid == self.pids()[ranks[0]]), None)
        return [each.pid for each in self.job.processes()
                if each.environment().get("FAKE_HOST") == host and b"sh" != each.read("comm").strip()]

    def is_in(self, phase, rank):
        return True

    def progress(self):
        try:
            return [os.path.getsize(f"{self.folder}/steps")]
        except OSError:
            return [0]

    def goes_on(self, before):
        sessions = [report for report in reports(self.job.output()) if SESSION.match(report)]
        is_whole = sessions and int(SESSION.match(sessions[-1])[1]) == self.plan.ranks
        return is_whole and self.progress()[0] > before[0] + 2 and 0 not in self.pids().values()

    def ends_well(self, output):
        return output.count("as replayed") == self.plan.ranks
