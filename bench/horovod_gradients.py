"""Times Horovod on a set of gradients, as kolo-perf times Kolo: every gradient is submitted by its
name, the last layer's first, then all are waited for; the slowest rank counts.

Usage: mpirun -np N python3 horovod_gradients.py FILE [ITERATIONS]
FILE has lines `name shape`, as for kolo-perf --gradients. Prints the median in microseconds.
"""

import statistics
import sys
import time

import horovod.torch as hvd
import torch

WARMUP = 5


def read(path):
    gradients = []
    for line in open(path):
        words = line.split("#")[0].split()
        if words:
            gradients.append((words[0], torch.ones([int(n) for n in words[1].split("x")])))
    return gradients[::-1]


def main():
    hvd.init()
    torch.set_num_threads(1)
    gradients = read(sys.argv[1])
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    times = []
    for iteration in range(WARMUP + iterations):
        for _, gradient in gradients:
            gradient.fill_(float(hvd.rank() + 1))
        hvd.barrier()
        start = time.perf_counter()
        handles = [hvd.allreduce_async_(g, name=name, op=hvd.Sum) for name, g in gradients]
        for handle in handles:
            hvd.synchronize(handle)
        took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        slowest = hvd.allgather(took, name="times").max().item()
        if iteration >= WARMUP:
            times.append(slowest)
        expected = hvd.size() * (hvd.size() + 1) / 2
        if any(not torch.all(g == expected) for _, g in gradients):
            sys.exit("a wrong sum")
    if hvd.rank() == 0:
        print(f"{1e6 * statistics.median(times):.1f}")


main()
