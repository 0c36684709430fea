#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory, time and loss of a step with PyTorch's DistributedDataParallel and FSDP (fully_shard) over Gloo:
the model, data and optimizer of bench-fully-sharded.

Usage: mpirun -np N fsdp_step.py MODEL [--steps 5] [--rounds 5] [--batch-size 1]

MODEL is what `bench-fully-sharded --save MODEL` has written. Prints rows of CSV: the number of ranks, the
kind, the median milliseconds of a step on the slowest rank, the most resident memory of a process beyond
that before the training in MB (10^6 bytes), and the mean loss of the ranks after the last step.
"""

import argparse
import ctypes
import gc
import json
import math
import os
import statistics
import struct
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 3
HEAD = 64  # the width of a head


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        windows, tokens, width = x.shape
        split = self.qkv(x).reshape(windows, tokens, 3, width // HEAD, HEAD)
        q, k, v = (split.select(2, i).transpose(1, 2) for i in range(3))
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(HEAD)).masked_fill(later, -math.inf)
        return self.project((scores.softmax(-1) @ v).transpose(1, 2).reshape(windows, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, context, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def read_safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    return {name: torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=torch.float32)
            .reshape(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def make_model(weights):
    vocabulary, width = weights["tokens.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    model = Gpt(layers, width, weights["positions.weight"].shape[0], vocabulary)
    model.load_state_dict(weights)
    return model


def replicated(model):
    return DistributedDataParallel(model)


def fully_sharded(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def status_mb(name):
    with open("/proc/self/status") as status:
        return next(1.024e-3 * int(line.split()[1]) for line in status if line.startswith(name + ":"))


def of_ranks(value, op):
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor, op)
    return tensor.item()


def begin_peak():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # sets the peak to the present


def make_tokens(windows, length):
    i = torch.arange(windows * length)
    return (i * 7919 + i * i % 13 + 31 * dist.get_rank()).remainder(256).view(windows, length)


def train(wrap, options):
    """The median milliseconds of a step, and the loss of the last one."""
    model = make_model(read_safetensors(options.model))
    context = model.positions.num_embeddings
    model = wrap(model)
    begin_peak()  # the weights that were read do not count
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    tokens = make_tokens(options.batch_size, context + 1)
    times = []
    for step in range(WARM_UP + options.steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        milliseconds = of_ranks(1e3 * (time.perf_counter() - begin), dist.ReduceOp.MAX)
        if step >= WARM_UP:
            times.append(milliseconds)
    return statistics.median(times), of_ranks(loss.item(), dist.ReduceOp.SUM) / dist.get_world_size()


def measure(wrap, options):
    begin_peak()
    before = status_mb("VmHWM")
    milliseconds, loss = train(wrap, options)
    return milliseconds, of_ranks(status_mb("VmHWM") - before, dist.ReduceOp.MAX), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    for name, default in (("--steps", 5), ("--rounds", 5), ("--batch-size", 1)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29619")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(os.environ.get("OMPI_COMM_WORLD_RANK", 0)),
                            world_size=int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1)))
    kinds = {"DistributedDataParallel": replicated, "FSDP (fully_shard)": fully_sharded}
    results = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, wrap in kinds.items():
            results[name].append(measure(wrap, options))
    if dist.get_rank() == 0:
        for name, rounds in results.items():
            times, memory, losses = zip(*rounds)
            print(f"{dist.get_world_size()},{name},{statistics.median(times):.0f},{max(memory):.0f},{losses[-1]:.6f}")
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads would end the process with an error


if __name__ == "__main__":
    main()
