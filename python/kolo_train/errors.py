# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one class for each kind of error. The page docs/errors.md explains them."""

from typing import Sequence, Type


class Error(Exception):
    """An error of Kolo.

    ranks:  the ranks concerned, in ascending order; may be empty
    tensor: the name of the operation or tensor, "" if there is none
    """

    def __init__(self, message: str, tensor: str = "", ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.ranks = tuple(ranks)


class InvalidArgument(Error, ValueError):
    """An argument is wrong, or the call is not allowed now. Nothing was submitted."""


class DuplicateName(InvalidArgument):
    """An operation of this name is pending. Nothing was submitted."""


class Mismatch(Error):
    """The ranks disagree. Tensors are unchanged, and the session continues."""


class PeerLeft(Error):
    """A rank left or was lost: `ranks` names it."""


class Stalled(Error):
    """Ranks did not submit the operation within the setting `stall_shutdown`."""


class ShutDown(Error):
    """This rank's session has ended, or the process set was removed."""


class BackendError(Error):
    """MPI or the system failed. The session cannot continue."""


class NotInitialized(Error):
    """There is no session: call `init` first."""


class BackwardFailed(Error):
    """The backward pass failed on another rank, a program in C++."""


class HookFailed(Error):
    """A communication hook failed on a rank, a program in C++."""


class CheckpointError(Error):
    """A checkpoint cannot be read or written."""


class MembershipChanged(Error):
    """Ranks are about to join or leave an elastic job."""


_CLASSES: dict[str, Type[Error]] = {
    "KOLO_INVALID_ARGUMENT": InvalidArgument,
    "KOLO_DUPLICATE_NAME": DuplicateName,
    "KOLO_MISMATCH": Mismatch,
    "KOLO_PEER_LEFT": PeerLeft,
    "KOLO_STALLED": Stalled,
    "KOLO_SHUT_DOWN": ShutDown,
    "KOLO_BACKEND_ERROR": BackendError,
    "KOLO_NOT_INITIALIZED": NotInitialized,
    "KOLO_BACKWARD_FAILED": BackwardFailed,
    "KOLO_HOOK_FAILED": HookFailed,
    "KOLO_CHECKPOINT_ERROR": CheckpointError,
    "KOLO_MEMBERSHIP_CHANGED": MembershipChanged,
}


def make_error(status: str, message: str, tensor: str, ranks: Sequence[int]) -> Exception:
    """The exception of a status of the C interface. The extension calls this."""
    if status == "KOLO_OUT_OF_MEMORY":
        return MemoryError(message)
    return _CLASSES.get(status, Error)(message, tensor, ranks)
