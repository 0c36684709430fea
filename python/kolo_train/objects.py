# SPDX-License-Identifier: Apache-2.0
"""Python objects, and the parameters of models."""

import pickle
from typing import Any, Iterable, Mapping, Optional, Union

import numpy

from . import _core
from .arrays import copy, exportable
from .collectives import allgather, broadcast_
from .process_sets import ProcessSet, global_process_set, interruptible
from .session import rank

NamedTensors = Union[Mapping[str, Any], Iterable[tuple[str, Any]]]


def broadcast_object(value: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The object of world rank `root_rank`, on every rank. It travels as a pickle."""
    own = rank() == root_rank
    data = numpy.frombuffer(pickle.dumps(value), numpy.uint8).copy() if own else None
    size = numpy.array(0 if data is None else data.size, numpy.int64)
    broadcast_(size, root_rank, name and name + ".size", process_set)
    if data is None:
        data = numpy.empty(int(size), numpy.uint8)
    broadcast_(data, root_rank, name, process_set)
    return value if own else pickle.loads(data.data)


def allgather_object(value: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in their order. They travel as pickles."""
    data = numpy.frombuffer(pickle.dumps(value), numpy.uint8)
    sizes = allgather(numpy.array([data.size], numpy.int64), name and name + ".size", process_set)
    everything = allgather(data, name, process_set)
    ends = numpy.cumsum(sizes)
    return [pickle.loads(everything[end - size:end].data) for size, end in zip(sizes, ends)]


def named(tensors: NamedTensors) -> list[tuple[str, Any]]:
    """Names and tensors of a dictionary, or of pairs."""
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    return [(name, exportable(tensor)) for name, tensor in pairs]


def _is_contiguous(tensor: Any) -> bool:
    if hasattr(tensor, "is_contiguous"):
        return bool(tensor.is_contiguous())
    return not hasattr(tensor, "flags") or bool(tensor.flags.c_contiguous)


def broadcast_parameters(params: NamedTensors, root_rank: int = 0,
                         process_set: ProcessSet = global_process_set) -> None:
    """Copies the tensors of world rank `root_rank` to every rank, in place. Raises `Mismatch` on
    every rank, before any tensor changes, if names, shapes or dtypes differ."""
    pairs = named(params)
    sent = [tensor if _is_contiguous(tensor) else copy(tensor) for _, tensor in pairs]
    with interruptible():
        _core.broadcast_parameters([name for name, _ in pairs], sent, root_rank, process_set.handle)
    for (_, tensor), other in zip(pairs, sent):
        if other is not tensor:
            tensor[...] = other


def require_equal(tensors: NamedTensors, process_set: ProcessSet = global_process_set) -> None:
    """Raises `Mismatch` on every rank unless the tensors are equal on all ranks, bit for bit. Its
    message names the first tensor that differs, and the ranks."""
    pairs = named(tensors)
    sent = [tensor if _is_contiguous(tensor) else copy(tensor) for _, tensor in pairs]
    with interruptible():
        _core.require_equal([name for name, _ in pairs], sent, process_set.handle)
