#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time that PyTorch's DistributedDataParallel adds to a training step of torchvision's ResNet-50, in
one process on one GPU.

Usage: ddp_step.py BATCH-DTYPE...    such as 32-f32 128-f32 32-bf16

The steps are those of bench-gpu-step: channels last, SGD with momentum, one synchronization for each
block of steps, blocks with and without DistributedDataParallel in turn. SGD updates one parameter at a
time, as LibTorch's does. Exits with 77 without PyTorch, torchvision or a GPU.
"""

import os
import statistics
import sys
import time

STEPS, ROUNDS, WARM_UP = 10, 5, 14
SKIPPED = 77


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    import torchvision
except ImportError as error:
    skip(f"PyTorch and torchvision are needed: {error}")


def training(batch, dtype, wraps):
    """A function that trains one step."""
    torch.manual_seed(7)
    model = torchvision.models.resnet50().cuda().to(dtype).to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(dtype)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device="cuda")
    if wraps:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, foreach=False)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images).float(), labels).backward()
        optimizer.step()
    return step


def block(step):
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / STEPS


def measure(name):
    batch, dtype = name.split("-")
    steps = [training(int(batch), torch.bfloat16 if dtype == "bf16" else torch.float, wraps)
             for wraps in (False, True)]
    for step in steps:
        for _ in range(WARM_UP):
            step()
    rounds = [[block(step) for step in steps] for _ in range(ROUNDS)]
    plain = statistics.median(times[0] for times in rounds)
    ddp = statistics.median(times[1] for times in rounds)
    more = statistics.median(100 * (times[1] / times[0] - 1) for times in rounds)
    print(f"measured ddp-{name}-plain {plain:.4f} ms")
    print(f"measured ddp-{name}-ddp {ddp:.4f} ms")
    print(f"measured ddp-{name}-ddp-over-plain {more:.4f} %", flush=True)


def main():
    if not torch.cuda.is_available():
        skip("PyTorch sees no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.set_device(0)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29617")
    dist.init_process_group("nccl", rank=0, world_size=1)
    print(f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    for name in sys.argv[1:]:
        measure(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
