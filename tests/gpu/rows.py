# SPDX-License-Identifier: Apache-2.0
"""The goals of the GPU path, and one line for each from the numbers that the benchmarks print.

A line `measured NAME VALUE UNIT` of a command's output is a number. A goal of several numbers is met if
each is; a goal without all of its numbers is open.
"""

import dataclasses
import re

MEASURED = re.compile(r"^measured (\S+) (-?[\d.]+) (\S+)$", re.MULTILINE)


@dataclasses.dataclass
class Limit:
    name: str  # of the number
    most: float
    unit: str
    below: str = ""  # the name of a number that this one must not reach
    beside: str = ""  # the name of what NCCL alone took in the same run, for the reader


@dataclasses.dataclass
class Row:
    work: str
    limits: list


def steps(batch, dtype, most):
    name = f"{batch}-{dtype}"
    return Limit(f"step-{name}-kolo-over-plain", most, "%", below=f"ddp-{name}-ddp-over-plain")


ROWS = [
    Row("step of ResNet-50 over LibTorch alone, batch 128 f32; 32 f32; 32 bf16",
        [steps(128, "f32", 1), steps(32, "f32", 5), steps(32, "bf16", 5)]),
    Row("the whole step as one captured graph over the graph without reduction, batch 32",
        [Limit("step-32-f32-captured-over-graph", 1, "%")]),
    Row("161 tensors of ResNet-50; 1000 x 1 KB, submitted and done",
        [Limit("host-1-resnet50-done", 0.30, "ms"), Limit("host-1-1000x1KB-done", 0.35, "ms")]),
    Row("host time of an NCCL call of two ranks",
        [Limit("nccl-2-kolo-4-host", 20, "us", beside="nccl-2-blocking-4-host")]),
    Row("1 MB; 64 MB among two ranks of the card",
        [Limit("host-2-1x1MiB-in-queue", 0.025, "ms", beside="nccl-2-blocking-1048576-in-queue"),
         Limit("host-2-1x64MiB-in-queue", 0.8, "ms", beside="nccl-2-blocking-67108864-in-queue")]),
]
PROGRAMS = "all programs of the check, memcheck and racecheck of the kernels"


def numbers_of(output):
    return {name: [float(value), unit] for name, value, unit in MEASURED.findall(output)}


def judge(limit, numbers):
    """The number as text, and whether it is good: None if it is not known."""
    if limit.name not in numbers:
        return f"{limit.name} is not measured", None
    value = numbers[limit.name][0]
    text = f"{value:.3g} {limit.unit} (at most {limit.most:g})"
    if limit.beside in numbers:
        alone, unit = numbers[limit.beside]
        text += f", NCCL alone {alone:.3g} {unit}"
    good = value <= limit.most
    if limit.below:
        if limit.below not in numbers:
            return f"{text}, DDP's is not measured", None if good else False
        text += f", DDP {numbers[limit.below][0]:.3g} {limit.unit}"
        good = good and value < numbers[limit.below][0]
    return text, good


def line(work, texts, states):
    word = "MISSED" if False in states else "open" if None in states else "met"
    return f"{word:6}  {work}: {'; '.join(texts)}"


def lines(numbers, passed, failed, left):
    """One line per goal. `passed`, `failed` and `left` (not run) are the names
    of commands."""
    found = []
    for row in ROWS:
        judged = [judge(limit, numbers) for limit in row.limits]
        found.append(line(row.work, [text for text, _ in judged], [good for _, good in judged]))
    checks = {f"kernel/{tool}" for tool in ("memcheck", "racecheck")}
    state = False if failed else None if left or not checks <= set(passed) else True
    text = f"{len(failed)} failures of {len(passed) + len(failed)}, {len(left)} not run"
    return [*found, line(PROGRAMS, [text], [state])]
