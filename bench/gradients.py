# SPDX-License-Identifier: Apache-2.0
"""Shared by the measurements of Kolo's peers."""

import statistics
import time

import torch

WARMUP = 5


def read(path):
    """The lines `name shape` of a file, as for kolo-perf --gradients, last first: name and shape."""
    gradients = []
    for line in open(path):
        words = line.split("#")[0].split()
        if words:
            gradients.append((words[0], [int(n) for n in words[1].split("x")]))
    return gradients[::-1]


def median_microseconds(iterations, prepare, run, slowest):
    """Times `run` after `prepare`; `slowest` makes a rank's seconds those of the slowest rank."""
    times = []
    for iteration in range(WARMUP + iterations):
        prepare()
        start = time.perf_counter()
        run()
        took = slowest(torch.tensor([time.perf_counter() - start], dtype=torch.float64))
        if iteration >= WARMUP:
            times.append(took)
    return 1e6 * statistics.median(times)
