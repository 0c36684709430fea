#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of residual networks with torchvision's names, in safetensors files.

Usage: weights.py tiny DIRECTORY       writes random weights of the backbone `tiny`: tiny.safetensors, and
                                       lacking.safetensors without one tensor
       weights.py compare DIRECTORY    compares what is frozen in the checkpoint in DIRECTORY/save with them
       weights.py resnet50 DIRECTORY   writes random weights of torchvision's ResNet-50, an image and its features
"""
import sys
from pathlib import Path

import numpy


def norm(random, name, channels):
    return {f"{name}.weight": random.normal(1, 0.1, channels), f"{name}.bias": random.normal(0, 0.1, channels),
            f"{name}.running_mean": random.normal(0, 0.1, channels),
            f"{name}.running_var": random.uniform(0.5, 1.5, channels)}


def tiny():
    """Stages of one block with two convolutions; the stem has 8 channels."""
    random = numpy.random.default_rng(1)
    tensors = {"conv1.weight": random.normal(0, 0.1, (8, 3, 7, 7)), **norm(random, "bn1", 8)}
    channels = 8
    for stage in range(4):
        out, name = 8 << stage, f"layer{stage + 1}.0"
        for number, into in ((1, channels), (2, out)):
            tensors[f"{name}.conv{number}.weight"] = random.normal(0, 0.1, (out, into, 3, 3))
            tensors |= norm(random, f"{name}.bn{number}", out)
        if out != channels:
            tensors[f"{name}.downsample.0.weight"] = random.normal(0, 0.1, (out, channels, 1, 1))
            tensors |= norm(random, f"{name}.downsample.1", out)
        channels = out
    tensors["fc.weight"] = random.normal(0, 0.1, (10, channels))
    return {name: values.astype(numpy.float32) for name, values in tensors.items()}


def write_tiny(directory):
    from safetensors.numpy import save_file
    tensors = tiny()
    save_file(tensors, directory / "tiny.safetensors")
    del tensors["layer3.0.conv2.weight"]
    save_file(tensors, directory / "lacking.safetensors")


def compare(directory):
    from safetensors.numpy import load_file
    saved = {}
    for file in next((directory / "save").glob("checkpoint-*")).glob("*.safetensors"):
        saved |= load_file(file)
    names = {"conv1.weight": "stem.0.weight", "bn1.running_var": "stem.1.running_var",
             "layer1.0.conv2.weight": "stage1.0.conv2.weight", "layer4.0.bn2.weight": "stage4.0.bn2.weight",
             "layer4.0.downsample.1.running_mean": "stage4.0.downsample.1.running_mean"}
    wanted = tiny()
    for name, own in names.items():
        if not numpy.array_equal(saved[f"network.{own}"], wanted[name]):
            sys.exit(f"{own} is not {name} of the file")
    if numpy.array_equal(saved["network.stage4.0.conv2.weight"], wanted["layer4.0.conv2.weight"]):
        sys.exit("stage 4 was not trained")


def write_resnet50(directory):
    import torch
    import torchvision
    from safetensors.torch import save_file
    torch.manual_seed(1)
    network = torchvision.models.resnet50(weights=None).eval()
    for name, tensor in network.state_dict().items():
        if name.endswith(("running_mean", "bias")):
            tensor.normal_(0, 0.1)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
    save_file(network.state_dict(), directory / "resnet50.safetensors")
    colors = torch.rand(2, 3, 96, 128)
    features = {"image": (colors * 255 - 127.5) / 64}
    normalize = torchvision.transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        x = network.maxpool(network.relu(network.bn1(network.conv1(normalize(colors)))))
        for stage in range(1, 5):
            x = features[f"layer{stage}"] = getattr(network, f"layer{stage}")(x)
    save_file({name: tensor.contiguous() for name, tensor in features.items()}, directory / "features.safetensors")


if __name__ == "__main__":
    {"tiny": write_tiny, "compare": compare, "resnet50": write_resnet50}[sys.argv[1]](Path(sys.argv[2]))
