# SPDX-License-Identifier: Apache-2.0
"""Kolo: distributed data-parallel training. `kolo_train.torch` has the optimizer for PyTorch."""

from . import _core
from .collectives import (
    Adasum, Average, Compression, Max, Min, Product, ReduceOp, Sum, allgather, allgather_async, allreduce,
    allreduce_, allreduce_async, allreduce_async_, alltoall, alltoall_async, barrier, barrier_async, broadcast,
    broadcast_, broadcast_async, broadcast_async_, grouped_allgather, grouped_allgather_async, grouped_allreduce,
    grouped_allreduce_, grouped_allreduce_async, grouped_allreduce_async_, grouped_reducescatter,
    grouped_reducescatter_async, join, join_async, reducescatter, reducescatter_async)
from .errors import (
    BackendError, BackwardFailed, CheckpointError, DuplicateName, Error, HookFailed, InvalidArgument,
    MembershipChanged, Mismatch, NotInitialized, PeerLeft, ShutDown, Stalled, make_error)
from .objects import allgather_object, broadcast_object, broadcast_parameters, require_equal
from .process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .requests import Request, poll, synchronize
from .session import (
    build_info, cpu_operations, cross_rank, cross_size, init, is_homogeneous, is_initialized, local_rank,
    local_size, rank, request_stop, shutdown, size, start_timeline, statistics_text, stop_requested,
    stop_timeline, write_flight_record)

_core.set_error_factory(make_error)

__version__ = _core.version()
__all__ = [
    "__version__", "Adasum", "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce",
    "allreduce_", "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "Average",
    "BackendError", "BackwardFailed", "barrier", "barrier_async", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "broadcast_object", "broadcast_parameters", "build_info", "CheckpointError",
    "Compression", "cpu_operations", "cross_rank", "cross_size", "DuplicateName", "Error", "global_process_set",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "HookFailed", "init", "InvalidArgument", "is_homogeneous", "is_initialized",
    "join", "join_async", "local_rank", "local_size", "Max", "MembershipChanged", "Min", "Mismatch",
    "NotInitialized", "PeerLeft", "poll", "ProcessSet", "Product", "rank", "ReduceOp", "reducescatter",
    "reducescatter_async", "remove_process_set", "Request", "request_stop", "require_equal", "ShutDown",
    "shutdown", "size", "Stalled", "start_timeline", "statistics_text", "stop_requested", "stop_timeline",
    "Sum", "synchronize", "write_flight_record",
]
