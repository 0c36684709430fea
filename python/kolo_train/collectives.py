# SPDX-License-Identifier: Apache-2.0
"""Collectives: every rank of a process set calls them.

Tensors are NumPy arrays, PyTorch tensors on the CPU, and other contiguous arrays that support DLPack or
the buffer protocol. Functions that end with `_` work in place. The others return new arrays: of PyTorch
for PyTorch's, else of NumPy. Data is not copied, except by the grouped allreduces that return new
arrays. `..._async` functions return a `Request`; then nothing may use the tensors until it is done.

Operations are matched across ranks by `name`, in any order; those without a name by the order of
their submission to the process set.
"""

import enum
from typing import Any, Optional, Sequence, TypeVar

from . import _core
from .arrays import copy, empty, exportable, from_extension, shape_of
from .process_sets import ProcessSet, global_process_set
from .requests import Request

Tensor = TypeVar("Tensor")


class ReduceOp(enum.IntEnum):
    """How the elements of all ranks are combined."""

    AVERAGE = _core.AVERAGE
    SUM = _core.SUM
    MIN = _core.MIN
    MAX = _core.MAX
    PRODUCT = _core.PRODUCT
    ADASUM = _core.ADASUM


Average, Sum, Min, Max, Product, Adasum = ReduceOp


class Compression(enum.IntEnum):
    """The type in which f32 and f64 tensors travel. They are summed in f32."""

    none = _core.COMPRESSION_NONE
    fp16 = _core.COMPRESSION_FP16
    bf16 = _core.COMPRESSION_BF16


def _reduction(name: Optional[str], op: ReduceOp, compression: Compression, prescale_factor: float,
               postscale_factor: float, process_set: ProcessSet) -> Any:
    return _core.Reduction(name, process_set.handle, int(op), int(compression), prescale_factor,
                           postscale_factor)


def allreduce_async_(tensor: Tensor, *, name: Optional[str] = None, op: ReduceOp = Average,
                     compression: Compression = Compression.none, prescale_factor: float = 1.0,
                     postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> Request[Tensor]:
    """Begins `allreduce_`."""
    reduction = _reduction(name, op, compression, prescale_factor, postscale_factor, process_set)
    return Request(_core.allreduce(exportable(tensor), None, reduction), lambda _: tensor)


def allreduce_(tensor: Tensor, **options: Any) -> Tensor:
    """Combines the ranks' tensors element by element, in place. Shape, dtype and options must be
    equal on all ranks. The options are those of `allreduce_async_`."""
    return allreduce_async_(tensor, **options).wait()


def allreduce_async(tensor: Tensor, *, name: Optional[str] = None, op: ReduceOp = Average,
                    compression: Compression = Compression.none, prescale_factor: float = 1.0,
                    postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> Request[Tensor]:
    """Begins `allreduce`."""
    reduction = _reduction(name, op, compression, prescale_factor, postscale_factor, process_set)
    source = exportable(tensor)
    output = empty(source, shape_of(source))
    return Request(_core.allreduce(source, output, reduction), lambda _: output)


def allreduce(tensor: Tensor, **options: Any) -> Tensor:
    """Combines the ranks' tensors element by element, in a new array. The options are those of
    `allreduce_async`."""
    return allreduce_async(tensor, **options).wait()


def grouped_allreduce_async_(tensors: Sequence[Tensor], *, name: Optional[str] = None,
                             op: ReduceOp = Average, compression: Compression = Compression.none,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> Request[list[Tensor]]:
    """Begins `grouped_allreduce_`."""
    reduction = _reduction(name, op, compression, prescale_factor, postscale_factor, process_set)
    result = list(tensors)
    request = _core.grouped_allreduce([exportable(tensor) for tensor in result], reduction)
    return Request(request, lambda _: result)


def grouped_allreduce_(tensors: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """Combines several tensors in place, as one operation. Their dtypes may differ."""
    return grouped_allreduce_async_(tensors, **options).wait()


def grouped_allreduce_async(tensors: Sequence[Tensor], **options: Any) -> Request[list[Tensor]]:
    """Begins `grouped_allreduce`."""
    return grouped_allreduce_async_([copy(exportable(tensor)) for tensor in tensors], **options)


def grouped_allreduce(tensors: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """Combines several tensors as one operation, in copies."""
    return grouped_allreduce_async(tensors, **options).wait()


def grouped_reducescatter_async(tensors: Sequence[Tensor], *, name: Optional[str] = None,
                                op: ReduceOp = Average, compression: Compression = Compression.none,
                                prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                                process_set: ProcessSet = global_process_set) -> Request[list[Tensor]]:
    """Begins `grouped_reducescatter`."""
    reduction = _reduction(name, op, compression, prescale_factor, postscale_factor, process_set)
    sources = [exportable(tensor) for tensor in tensors]
    outputs = [_scattered(source, process_set) for source in sources]
    return Request(_core.reducescatter(sources, outputs, reduction), lambda _: outputs)


def _scattered(source: Any, process_set: ProcessSet) -> Any:
    """A new array for this rank's rows."""
    shape = shape_of(source)
    if not shape or not process_set.included():
        return empty(source, shape)  # the extension refuses it
    rows = _core.reducescatter_rows(shape[0], process_set.rank(), process_set.size())
    return empty(source, (rows, *shape[1:]))


def grouped_reducescatter(tensors: Sequence[Tensor], **options: Any) -> list[Tensor]:
    """Combines several tensors as one operation, and gives each rank its rows of each."""
    return grouped_reducescatter_async(tensors, **options).wait()


def reducescatter_async(tensor: Tensor, **options: Any) -> Request[Tensor]:
    """Begins `reducescatter`."""
    request = grouped_reducescatter_async([tensor], **options)
    return Request(request, lambda done: done.wait()[0])


def reducescatter(tensor: Tensor, **options: Any) -> Tensor:
    """Combines the ranks' tensors, and gives each rank its rows of the result: rows are slices along
    the first dimension, and the first ranks get one more if they cannot be divided evenly. The options
    are those of `grouped_reducescatter_async`."""
    return reducescatter_async(tensor, **options).wait()


def grouped_allgather_async(tensors: Sequence[Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> Request[list[Tensor]]:
    """Begins `grouped_allgather`."""
    sources = [exportable(tensor) for tensor in tensors]
    request = _core.allgather(sources, name, process_set.handle)

    def finish(done: Any) -> list[Any]:
        return [from_extension(output, like) for output, like in zip(done.take_outputs(), sources)]

    return Request(request, finish)


def grouped_allgather(tensors: Sequence[Tensor], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> list[Tensor]:
    """Gathers several tensors as one operation."""
    return grouped_allgather_async(tensors, name, process_set).wait()


def allgather_async(tensor: Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> Request[Tensor]:
    """Begins `allgather`."""
    request = grouped_allgather_async([tensor], name, process_set)
    return Request(request, lambda done: done.wait()[0])


def allgather(tensor: Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Tensor:
    """Concatenates the ranks' tensors along the first dimension, in the order of the ranks. Their first
    dimensions may differ. A scalar counts as one row."""
    return allgather_async(tensor, name, process_set).wait()


def broadcast_async_(tensor: Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Request[Tensor]:
    """Begins `broadcast_`."""
    request = _core.broadcast(exportable(tensor), None, root_rank, name, process_set.handle)
    return Request(request, lambda _: tensor)


def broadcast_(tensor: Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> Tensor:
    """Copies the tensor of world rank `root_rank` to every rank, in place."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def broadcast_async(tensor: Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> Request[Tensor]:
    """Begins `broadcast`."""
    source = exportable(tensor)
    output = empty(source, shape_of(source))
    request = _core.broadcast(source, output, root_rank, name, process_set.handle)
    return Request(request, lambda _: output)


def broadcast(tensor: Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> Tensor:
    """Copies the tensor of world rank `root_rank` to a new array on every rank."""
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def alltoall_async(tensor: Tensor, splits: Optional[Sequence[int]] = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> Request[Any]:
    """Begins `alltoall`."""
    source = exportable(tensor)
    counts = None if splits is None else [int(count) for count in splits]
    request = _core.alltoall(source, counts, name, process_set.handle)

    def finish(done: Any) -> Any:
        output = from_extension(done.take_outputs()[0], source)
        return output if counts is None else (output, list(done.rows))

    return Request(request, finish)


def alltoall(tensor: Tensor, splits: Optional[Sequence[int]] = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Any:
    """Sends `splits[i]` rows of the tensor to the i-th member of the set, and returns the rows that this
    rank receives and, with `splits`, their numbers. Without `splits`, each member gets as many."""
    return alltoall_async(tensor, splits, name, process_set).wait()


def barrier_async(name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set) -> Request[None]:
    """Begins `barrier`."""
    return Request(_core.barrier(name, process_set.handle), lambda _: None)


def barrier(name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> None:
    """Waits until every member of the set has called it."""
    barrier_async(name, process_set).wait()


def join_async() -> Request[int]:
    """Begins `join`."""
    return Request(_core.join(), lambda done: done.last_rank)


def join() -> int:
    """Declares that this rank has no more data, and waits for every rank to join. Meanwhile the other
    ranks' allreduces and allgathers complete without this rank. Returns the last rank to join."""
    return join_async().wait()
