# SPDX-License-Identifier: Apache-2.0
"""Times Horovod on a set of gradients, as kolo-perf times Kolo: submits every gradient by name, the
last layer first, and waits for all of them. The slowest rank counts.

Usage: mpirun -np N python3 horovod_gradients.py FILE [ITERATIONS]
FILE has lines `name shape`, as for kolo-perf --gradients. Prints the median in microseconds.
"""

import sys

import gradients
import horovod.torch as hvd
import torch


def main():
    hvd.init()
    torch.set_num_threads(1)
    tensors = [(name, torch.empty(shape)) for name, shape in gradients.read(sys.argv[1])]
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    expected = hvd.size() * (hvd.size() + 1) / 2
    reduced = False

    def prepare():
        nonlocal reduced
        if reduced and any(not torch.all(tensor == expected) for _, tensor in tensors):
            sys.exit("a wrong sum")
        reduced = True
        for _, tensor in tensors:
            tensor.fill_(float(hvd.rank() + 1))
        hvd.barrier()

    def run():
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for name, tensor in tensors]
        for handle in handles:
            hvd.synchronize(handle)

    def slowest(seconds):
        return hvd.allgather(seconds, name="seconds").max().item()

    median = gradients.median_microseconds(iterations, prepare, run, slowest)
    if hvd.rank() == 0:
        print(f"{median:.1f}")


main()
