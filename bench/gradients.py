# SPDX-License-Identifier: Apache-2.0
"""Functions shared by the measurements of Kolo's peers."""

import statistics
import time

import torch

WARMUP = 5


def read(path):
    """Reads a file for kolo-perf --gradients, with lines `name shape`. Returns names and shapes, last line first."""
    gradients = []
    for line in open(path):
        words = line.split("#")[0].split()
        if words:
            gradients.append((words[0], [int(n) for n in words[1].split("x")]))
    return gradients[::-1]


def median_microseconds(iterations, prepare, run, slowest):
    """Times `run` after `prepare`; `slowest` replaces this rank's seconds by those of the slowest rank."""
    times = []
    for iteration in range(WARMUP + iterations):
        prepare()
        start = time.perf_counter()
        run()
        took = slowest(torch.tensor([time.perf_counter() - start], dtype=torch.float64))
        if iteration >= WARMUP:
            times.append(took)
    return 1e6 * statistics.median(times)
