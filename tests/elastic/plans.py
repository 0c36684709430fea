# SPDX-License-Identifier: Apache-2.0
"""Draws the runs of the campaign: a program, its hosts, and faults. Every run follows from its seed."""
import dataclasses
import random

RANKS = 4
# By phase: the most microseconds until a thread commits the fault; None: the program does, at once.
PHASES = {"start": None, "startup": 200_000, "negotiation": 1_000, "step": None, "batch": 4_000, "commit": 1_500,
          "save": None, "load": None, "rejoin": None, "reset": None, "restart": 30_000, "second": 600_000, "end": 2_000}
FIRST = ["start", "startup", "negotiation", "negotiation", "step", "batch", "batch", "commit", "save", "reset", "end"]
LATER = ["second", "second", "second", "restart", "load", "rejoin", "reset", "save", "batch", "negotiation", "step",
         "end"]
EARLY = ["start", "startup", "negotiation", "reset"]  # before the first step has been made
# Phases of the program with LibTorch.
TORCH = ["step", "commit", "save", "load", "rejoin", "reset", "restart", "second"]
ANY_KIND = ["kill", "kill", "stop", "pause", "exit", "throw", "leave"]
# A thread can neither throw for the program nor leave a session in good order.
KINDS_OF_THREADS = ["kill", "kill", "stop", "pause", "exit"]
HOSTS = ["one", "one", "emulated", "ssh", "ssh", "networks"]
OPTIMIZERS = ["plain", "sharded", "plain", "sharded", "torch", "torch_sharded"]
LONG_CUT = 3.5  # seconds; the lease is 2


@dataclasses.dataclass
class Plan:
    seed: int
    hosts: str
    optimizer: str
    launch: list = dataclasses.field(default_factory=list)
    options: list = dataclasses.field(default_factory=list)
    faults: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    lasts: float = 0  # seconds until a cable is mended, or a process continues


def draw_kind(draw, phase, hosts, is_first):
    if phase == "end":  # where the others may have ended: nobody would report a rank that is stopped
        kinds = ["kill", "exit", "pause"]
    elif PHASES[phase] is not None:
        kinds = KINDS_OF_THREADS
    elif phase == "start":
        kinds = ["kill", "exit", "stop", "pause"]
    else:
        kinds = ANY_KIND
    # At most two processes are lost with a host.
    if is_first and hosts == "ssh" and phase not in ("start", "startup", "end") and draw.random() < 0.4:
        return draw.choice(["host", "host", "host", "hoststop"])
    if is_first and hosts == "networks" and phase not in ("start", "startup", "end"):
        return "cut"
    return draw.choice(kinds)


def draw_faults(draw, hosts, phases_of):
    """Draws faults, which leave at least one of the first four ranks."""
    faults, remaining = [], RANKS
    for i in range(draw.choice([1, 2, 2, 3])):
        phase = draw.choice([each for each in (LATER if i > 0 else FIRST) if each in phases_of])
        kind = draw_kind(draw, phase, hosts, i == 0)
        rank = draw.randrange(remaining)
        remaining -= 2 if kind in ("host", "hoststop", "cut") else 1
        if remaining < 1:
            break
        has_step = phase not in ("restart", "second", "end") and (i > 0 or phase not in EARLY)
        step = draw.choice([0, 0, draw.randint(1, 12)]) if has_step else 0
        delay = "" if PHASES[phase] is None else f":{draw.randrange(PHASES[phase])}"
        faults.append(f"{kind}:{phase}:{rank}:{step}{delay}")
    return faults


def draw_plan(seed):
    draw = random.Random(seed)
    plan = Plan(seed, draw.choice(HOSTS), draw.choice(OPTIMIZERS))
    torch = plan.optimizer.startswith("torch")
    if torch:  # its sums depend on the order of the ranks
        plan.hosts = draw.choice(["one", "ssh"])
        plan.optimizer = draw.choice(["torch_sharded", plan.optimizer])
    plan.faults = draw_faults(draw, plan.hosts, TORCH if torch else list(PHASES))
    # A program with LibTorch takes seconds to start on a busy machine.
    plan.launch = ["-np", str(RANKS), "--min-np", "1", "--elastic-timeout", "8", "--start-timeout",
                   "120" if torch else "12"]
    comes_back = plan.hosts == "networks" or draw.random() < 0.4
    plan.launch += ["--cooldown", "0.2:1" if comes_back else "1000:1000"]
    plan.lasts = draw.choice([draw.uniform(0.05, 1), draw.uniform(1, 7)])
    plan.environment = {"KOLO_STALL_WARNING": "1", "KOLO_STALL_SHUTDOWN": "3"}
    if plan.hosts == "emulated":
        plan.environment["KOLO_TEST_RANKS_PER_HOST"] = draw.choice(["1", "2"])
    elif plan.hosts == "ssh":
        plan.launch += ["-H", draw.choice(["near:2,far:2", "localhost:2,far:2"]), "--network-interface", "lo",
                        "--lease", "2"]
    elif plan.hosts == "networks":
        plan.launch += ["-H", "localhost:2,far:2", "--network-interface", "wire", "--lease", "2"]
    if torch:
        plan.options = [draw.choice(["sharded", "sharded_state"]) if plan.optimizer == "torch_sharded" else "adam"]
        return plan
    plan.options = [f"commit_every={draw.randint(1, 4)}"]
    if any(each.startswith("hoststop:") for each in plan.faults):
        plan.options.append("pause_ms=100")  # until its lease is over
    elif any(":second:" in each for each in plan.faults):
        plan.options.append("pause_ms=20")
    else:
        plan.options.append(f"pause_ms={draw.choice([0, 0, 1, 3])}")
    if any(":batch:" in each for each in plan.faults):
        plan.options.append("size=200000")  # so that a reduction takes milliseconds
    if plan.optimizer == "sharded":
        plan.options.append("sharded=1")
    if plan.hosts in ("emulated", "networks"):
        plan.options.append("exact=1")
    if any(each.startswith("cut:") for each in plan.faults):
        plan.lasts = draw.choice([draw.uniform(0.1, 0.9), draw.uniform(0.9, 2.5), *[draw.uniform(LONG_CUT, 6)] * 3])
        plan.options.append("pause_ms=10")
        # Trains until the host has returned. None does once a process has left, as if its work were done.
        if plan.lasts >= LONG_CUT and not any(each.startswith("leave:") for each in plan.faults):
            plan.options.append("until_file=1")
    return plan
