# SPDX-License-Identifier: Apache-2.0
"""Draws the jobs of run_pauses.py and their pauses. Every job follows from its seed."""
import dataclasses
import random

PHASES = ["start", "plan", "join", "sets", "departure", "end"]  # as in pause_program.cpp
# Most seconds from the beginning of a phase to the pause.
SPANS = {"start": 0.05, "plan": 0.3, "join": 0.1, "sets": 0.1, "departure": 0.01, "end": 0.03, "any": 0.3,
         "round": 0.8}
SHORT = (0.1, 2)
LONG = (10, 60)
PER_JOB = 20


@dataclasses.dataclass
class Pause:
    who: str      # all: all ranks; job: also the launcher and its agents; host, rank
    index: int    # of the host or the rank
    length: float
    phase: str    # "round": a rank of an elastic job is killed, and the others meet again
    delay: float
    spread: float  # between the first and the last process that stops
    victim: int    # rank that is killed


@dataclasses.dataclass
class Plan:
    seed: int
    launcher: str  # mpirun, kolorun, elastic
    ranks: int
    per_host: int  # 0: one host
    limit: int     # 0: none
    pauses: list = dataclasses.field(default_factory=list)

    def hosts(self):
        per_host = self.per_host or self.ranks
        return [list(range(first, min(first + per_host, self.ranks))) for first in range(0, self.ranks, per_host)]


def draw_pause(draw, plan, span):
    parts = ["rank"] if len(plan.hosts()) == 1 else ["rank", "host"]
    who = draw.choice(["all", "job", *parts, *parts])
    if plan.launcher == "elastic":
        phase = draw.choice(["any", "round"])
    else:
        phase = draw.choice(["any", *PHASES])
    index = draw.randrange(len(plan.hosts()) if who == "host" else plan.ranks)
    return Pause(who, index, draw.uniform(*span), phase, draw.uniform(0, SPANS[phase]),
                 draw.choice([0, draw.uniform(0, 0.2)]), draw.randrange(plan.ranks))


def draw_plan(seed, short, long, most, limit, launchers):
    draw = random.Random(seed)
    plan = Plan(seed, draw.choice(launchers), draw.choice([2, 3, 4]), draw.choice([0, 1, 2]),
                draw.choice([limit, limit, 0]))
    if plan.launcher == "elastic":
        plan.ranks, plan.per_host = draw.choice([(2, 0), (3, 0), (4, 0), (2, 1), (4, 2), (4, 2)])
    spans = [(SHORT[0], most)] * short + [LONG] * long
    draw.shuffle(spans)
    plan.pauses = [draw_pause(draw, plan, span) for span in spans]
    return plan


def draw_plans(seed, pauses, long, most, limit, launchers):
    """Jobs of PER_JOB pauses each; the long ones are spread over them. `most`: seconds of the others."""
    jobs = -(-pauses // PER_JOB)
    plans = []
    for job in range(jobs):
        count = len(range(job, pauses, jobs))
        long_ones = min(count, len(range(job, long, jobs)))
        plans.append(draw_plan(seed * 100_000 + job, count - long_ones, long_ones, most, limit, launchers))
    return plans
