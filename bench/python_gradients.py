# SPDX-License-Identifier: Apache-2.0
"""Times the Python package's DistributedOptimizer on a set of gradients: the time that it adds to a
backward pass that only creates these gradients, on the slowest rank.

Usage: kolorun -np N python3 python_gradients.py FILE [ITERATIONS]
FILE has lines `name shape`, as for kolo-perf --gradients. Prints microseconds: the median of the
pass with reductions minus that of the same pass without communication, as ddp_gradients.py does.
"""

import sys

import gradients
import torch

import kolo_train.torch as kolo


def main():
    kolo.init()
    torch.set_num_threads(1)
    shapes = gradients.read(sys.argv[1])
    weights = [torch.nn.Parameter(torch.zeros(shape)) for _, shape in reversed(shapes)]
    optimizer = kolo.DistributedOptimizer(torch.optim.SGD(weights, lr=0.0))
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    factor = torch.tensor(float(kolo.rank() + 1))
    loss = None

    def prepare():
        nonlocal loss
        optimizer.zero_grad(set_to_none=False)
        loss = sum((weight * factor).sum() for weight in weights)
        kolo.barrier()

    def run():
        loss.backward()
        optimizer.synchronize()

    def run_alone():
        loss.backward()

    def slowest(seconds):
        return kolo.allreduce_(seconds, op=kolo.Max).item()

    with_communication = gradients.median_microseconds(iterations, prepare, run, slowest)
    expected = (kolo.size() + 1) / 2
    if any(not torch.all(weight.grad == expected) for weight in weights):
        sys.exit("a wrong average")
    with optimizer.no_sync():
        without = gradients.median_microseconds(iterations, prepare, run_alone, slowest)
    if kolo.rank() == 0:
        print(f"{with_communication - without:.1f}")


main()
