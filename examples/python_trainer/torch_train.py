#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of points on the arms of a spiral, with PyTorch. KOLO marks what is new.

Usage: kolorun -np 2 python3 torch_train.py
"""
import math

import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import kolo_train.torch as kolo  # KOLO

POINTS, ARMS, HIDDEN, EPOCHS, BATCH = 300, 3, 64, 400, 300


def spiral():
    """The points, and the arms to which they belong."""
    number = torch.arange(POINTS)
    radius = (number + 1) / POINTS
    angle = 4.0 * radius + number % ARMS * 2.0 * math.pi / ARMS
    return 3.0 * torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), number % ARMS


def main():
    kolo.init()  # KOLO
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, ARMS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = kolo.DistributedOptimizer(optimizer, model.named_parameters())  # KOLO
    kolo.broadcast_parameters(model.state_dict(), root_rank=0)  # KOLO
    kolo.broadcast_optimizer_state(optimizer, root_rank=0)  # KOLO
    data = TensorDataset(*spiral())
    sampler = DistributedSampler(data, kolo.size(), kolo.rank())  # KOLO: a share of each epoch
    loader = DataLoader(data, BATCH // kolo.size(), sampler=sampler)
    for epoch in range(1, EPOCHS + 1):
        sampler.set_epoch(epoch)
        for points, arms in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points), arms)
            loss.backward()
            optimizer.step()
        if epoch % 100 == 0:
            mean = kolo.allreduce(loss.detach(), name="loss")  # KOLO
            if kolo.rank() == 0:
                print(f"epoch {epoch}: loss {mean.item():.4f}")


main()
