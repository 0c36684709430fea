# SPDX-License-Identifier: Apache-2.0
"""Results of asynchronous operations."""

from typing import Any, Callable, Generic, Optional, TypeVar

Result = TypeVar("Result")


class Request(Generic[Result]):
    """An operation that was submitted. Its tensors must not be used until it is done. They stay
    alive, also if the request is dropped; then the operation continues.

    Use a request from one thread at a time. Other Python threads run while it waits.
    """

    def __init__(self, request: Any, finish: Callable[[Any], Result]) -> None:
        self._request = request
        self._finish: Optional[Callable[[Any], Result]] = finish
        self._result: Optional[Result] = None

    def wait(self) -> Result:
        """Waits until the operation is done, and returns its result, or raises its error. Ctrl-C
        raises `KeyboardInterrupt`."""
        self._request.wait()
        return self._take()

    def wait_for(self, seconds: float) -> bool:
        """As `wait`, but at most so long. True if the operation is done."""
        return bool(self._request.wait_for(seconds))

    def ready(self) -> bool:
        """True once `wait` would not block. Does not raise the operation's error."""
        return bool(self._request.ready())

    def _take(self) -> Result:
        if self._finish is not None:
            self._result = self._finish(self._request)
            self._finish = None
        return self._result  # type: ignore[return-value]


def synchronize(request: Request[Result]) -> Result:
    """Waits for an operation: `request.wait()`."""
    return request.wait()


def poll(request: Request[Any]) -> bool:
    """True once an operation is done: `request.ready()`."""
    return request.ready()
