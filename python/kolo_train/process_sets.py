# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks for collectives."""

import contextlib
import signal
import threading
from typing import Iterable, Iterator, Optional, Sequence, Union

from . import _core
from .errors import InvalidArgument


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """For calls that cannot return early: Ctrl-C ends the process at once meanwhile, unless the
    program handles SIGINT itself."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class ProcessSet:
    """A set of world ranks. `add_process_set` makes it usable; all ranks call it with the same
    ranks. The sets of a session end with it."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks: Sequence[int] = sorted(ranks)
        self._handle: Optional[int] = None

    def __del__(self) -> None:
        if self._handle:
            _core.process_set_free(self._handle)

    @property
    def handle(self) -> int:
        """The number by which the extension knows the set."""
        if self._handle is None:
            raise InvalidArgument("this process set was not added: call add_process_set first")
        return self._handle

    @property
    def process_set_id(self) -> int:
        """An identifier, the same on all ranks; 0 for the world."""
        return _core.process_set_id(self.handle)

    @property
    def ranks(self) -> list[int]:
        """The world ranks of the members, in ascending order."""
        return list(self._ranks) if self._handle is None else _core.process_set_ranks(self._handle)

    def size(self) -> int:
        """The number of members."""
        return len(self.ranks)

    def rank(self) -> int:
        """The index of this rank among the members; -1 if it is none."""
        return _core.process_set_rank(self.handle)

    def included(self) -> bool:
        """True if this rank is a member."""
        return self.rank() >= 0

    def __repr__(self) -> str:
        return "ProcessSet(the world)" if self._handle == 0 else f"ProcessSet({list(self._ranks)})"


def _world() -> ProcessSet:
    world = ProcessSet(())
    world._handle = 0
    return world


global_process_set = _world()
"""All ranks."""


def add_process_set(process_set: Union[ProcessSet, Iterable[int]]) -> ProcessSet:
    """Adds a set of ranks. Collective: every rank, member or not, calls it with the same ranks."""
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if added._handle is None:
        with interruptible():
            added._handle = _core.process_set_add(list(added._ranks))
    return added


def remove_process_set(process_set: ProcessSet) -> None:
    """Removes a set. Collective over all ranks. Its pending operations fail with `ShutDown`."""
    with interruptible():
        _core.process_set_remove(process_set.handle)
