#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the checkpoints of checkpoint_program with Python's package `safetensors`.

Usage: checkpoint_python.py read FILE|INDEX RANKS | write FILE | change FILE
"""
import ctypes
import json
import os
import struct
import sys

import numpy
import safetensors
from safetensors import safe_open
from safetensors.numpy import save_file


def bfloat16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


# Name: dtype, shape, little-endian bytes.
MODEL = {
    "model.0.weight": ("F32", [2, 3], struct.pack("<6f", 1, 2, 3, 4, 5, 6)),
    "model.0.bias": ("F64", [2], struct.pack("<2d", -1, 0.5)),
    "model.half": ("F16", [2], struct.pack("<2e", 1, -2)),
    "model.brain": ("BF16", [2, 1], bfloat16([1, -2])),
    "model.mask": ("BOOL", [3], b"\x01\x00\x01"),
    "model.steps": ("I64", [], struct.pack("<q", 1 << 40)),
}
SAMPLER = ("U8", [17], b"text of a sampler")


def read(path, ranks):
    expected = MODEL | {"sampler": SAMPLER}
    for rank in range(ranks):
        expected[f"per_rank.{rank}.residual.x"] = ("F64", [], struct.pack("<d", 0.5 * rank))
    files = [path]
    if path.endswith(".json"):
        with open(path) as file:
            weight_map = json.load(file)["weight_map"]
        assert set(weight_map) == set(expected), f"{path} lists {set(weight_map)}"
        folder = os.path.dirname(path)
        files = sorted({os.path.join(folder, name) for name in os.listdir(folder)} - {path})
        assert {os.path.join(folder, name) for name in weight_map.values()} <= set(files), weight_map
    found = {}
    for name in files:
        with open(name, "rb") as file:
            for tensor, value in safetensors.deserialize(file.read()):
                found[tensor] = (value["dtype"], list(value["shape"]), bytes(value["data"]))
    assert found == expected, f"{path} has {found}"
    with safe_open(files[0], framework="np") as file:
        metadata = file.metadata()
        assert numpy.array_equal(file.get_tensor("model.0.weight"),
                                 numpy.arange(1, 7, dtype=numpy.float32).reshape(2, 3))
    stated = {key: metadata[key] for key in ("kolo.step", "kolo.metric", "kolo.ranks", "format")}
    assert stated == {"kolo.step": "10", "kolo.metric": "0.125", "kolo.ranks": str(ranks),
                      "format": "pt"}, metadata


def write(path):
    # numpy has no bfloat16, so the bytes are given as they are.
    names = {"F32": "float32", "F64": "float64", "F16": "float16", "BF16": "bfloat16",
             "BOOL": "bool", "I64": "int64", "U8": "uint8"}
    tensors, kept = {}, []
    for name, (dtype, shape, data) in (MODEL | {"sampler": SAMPLER}).items():
        if hasattr(safetensors, "TensorSpec"):
            kept.append(ctypes.create_string_buffer(data, len(data)))
            tensors[name] = safetensors.TensorSpec(
                dtype=names[dtype], shape=shape, data_ptr=ctypes.addressof(kept[-1]),
                data_len=len(data))
        else:  # an earlier version of the package
            tensors[name] = {"dtype": names[dtype], "shape": shape, "data": data}
    safetensors.serialize_file(tensors, path, {"kolo.step": "20", "kolo.metric": "0.125"})


def change(path):
    """As a program that averages weights, say: other tensors, and Kolo's metadata without its checksums."""
    with safe_open(path, framework="np") as file:
        metadata = {key: value for key, value in file.metadata().items()
                    if not key.startswith("kolo.writer.")}
        tensors = {name: file.get_tensor(name) for name in file.keys() if name != "model.brain"}
    tensors["model.0.weight"] = tensors["model.0.weight"] * 2
    save_file(tensors, path, metadata)


if __name__ == "__main__":
    command, path = sys.argv[1:3]
    if command == "read":
        read(path, int(sys.argv[3]))
    elif command == "write":
        write(path)
    else:
        change(path)
