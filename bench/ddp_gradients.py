# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's DistributedDataParallel over Gloo on a set of gradients: the time that it adds to a
backward pass that only creates these gradients, on the slowest rank.

Usage: mpirun -np N python3 ddp_gradients.py FILE [ITERATIONS]
FILE has lines `name shape`, as for kolo-perf --gradients. Prints microseconds: the median of the
pass with DistributedDataParallel minus that of the same pass without communication.
"""

import os
import sys

import gradients
import torch
import torch.distributed as dist


class Model(torch.nn.Module):
    """A model whose loss is the sum of all parameters, times a factor that differs between ranks."""

    def __init__(self, shapes):
        super().__init__()
        self.weights = torch.nn.ParameterList(
            [torch.nn.Parameter(torch.zeros(shape)) for _, shape in reversed(shapes)])

    def forward(self, factor):
        return sum((weight * factor).sum() for weight in self.weights)


def main():
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29400")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.set_num_threads(1)
    model = Model(gradients.read(sys.argv[1]))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    loss = None

    def prepare():
        nonlocal loss
        model.zero_grad(set_to_none=False)
        loss = parallel(torch.tensor(float(rank + 1)))
        dist.barrier()

    def run():
        loss.backward()

    def slowest(seconds):
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return seconds.item()

    with_communication = gradients.median_microseconds(iterations, prepare, run, slowest)
    expected = (size + 1) / 2
    if any(not torch.all(weight.grad == expected) for weight in model.weights):
        sys.exit("a wrong average")
    with parallel.no_sync():
        without = gradients.median_microseconds(iterations, prepare, run, slowest)
    if rank == 0:
        print(f"{with_communication - without:.1f}")


main()
