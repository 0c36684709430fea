# SPDX-License-Identifier: Apache-2.0
"""Sessions: start, end, and this rank's place among the ranks and hosts."""

from typing import Iterable, Optional, Union

from . import _core
from .process_sets import ProcessSet, add_process_set, interruptible

def init(*, process_sets: Iterable[Union[ProcessSet, Iterable[int]]] = (), **settings: object) -> None:
    """Starts the session; collective over all ranks. A process has at most one session at a time.

    settings: settings of docs/settings.md by name, such as `stall_shutdown=120`. They override the
              environment variables.

    The session ends with `shutdown`, or with the program. If the program ends with an exception or another
    status than 0, the other ranks get `PeerLeft`.
    """
    with interruptible():
        _core.init([(name, _text_of(value)) for name, value in settings.items()])
    for process_set in process_sets:
        add_process_set(process_set)


def _text_of(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def shutdown() -> None:
    """Ends the session, once all ranks do so. Operations that not all ranks have submitted fail with
    `ShutDown`. No effect without a session."""
    with interruptible():
        _core.shutdown()


def is_initialized() -> bool:
    """True during a session."""
    return _core.initialized()


def rank() -> int:
    """This rank, from 0. Like the functions below it raises `NotInitialized` outside a session."""
    return _core.rank()


def size() -> int:
    """The number of ranks."""
    return _core.size()


def local_rank() -> int:
    """This rank's index among the ranks of its host."""
    return _core.local_rank()


def local_size() -> int:
    """The number of ranks on this host."""
    return _core.local_size()


def cross_rank() -> int:
    """This host's index among the hosts that have a rank with this `local_rank`."""
    return _core.cross_rank()


def cross_size() -> int:
    """The number of these hosts."""
    return _core.cross_size()


def is_homogeneous() -> bool:
    """True if every host has the same number of ranks."""
    return _core.homogeneous()


def cpu_operations() -> str:
    """How tensors travel, such as "shm"."""
    return _core.cpu_operations()


def stop_requested() -> bool:
    """True on all ranks after the same call once one rank was asked to stop: by `request_stop` or by
    a signal of the setting `stop_signals`. Collective: call it once per step."""
    with interruptible():
        return _core.stop_requested()


def request_stop() -> None:
    """Makes `stop_requested` answer True on all ranks."""
    _core.request_stop()


def statistics_text() -> str:
    """This rank's statistics as a table."""
    return _core.statistics_text()


def start_timeline(path: str) -> None:
    """Starts to write a timeline as JSON; `%r` in the path is replaced by the rank, without it only
    rank 0 writes."""
    _core.start_timeline(path)


def stop_timeline() -> None:
    """Ends the timeline."""
    _core.stop_timeline()


def write_flight_record(path: Optional[str] = None) -> str:
    """Writes this rank's recent events, and returns the path of the file."""
    return _core.write_flight_record(path)


def build_info() -> dict[str, str]:
    """The libraries of this build: "version", "mpi_library", "cuda", "nccl"."""
    return _core.build_info()
