# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy, and tensors of PyTorch if the program has imported it."""

import sys
from typing import Any, Sequence


def is_torch(array: Any) -> bool:
    """True for a tensor of PyTorch. Does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, getattr(torch, "Tensor", ()))


def exportable(array: Any) -> Any:
    """The same memory, as the extension accepts it: without a record of gradients, and numbers as
    arrays."""
    if isinstance(array, (bool, int, float)):
        import numpy
        return numpy.asarray(array)
    return array.detach() if is_torch(array) else array


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of any array."""
    return tuple(array.shape if hasattr(array, "shape") else memoryview(array).shape or ())


def empty(like: Any, shape: Sequence[int]) -> Any:
    """A new array of the same kind and dtype: of PyTorch for PyTorch's, else of NumPy."""
    if is_torch(like):
        return like.new_empty(tuple(shape), requires_grad=False)
    import numpy
    return numpy.empty(tuple(shape), dtype=numpy.asarray(like).dtype)


def copy(array: Any) -> Any:
    """A contiguous copy, of PyTorch for PyTorch's, else of NumPy."""
    if is_torch(array):
        result = empty(array, array.shape)
        result.copy_(array)
        return result
    import numpy
    return numpy.array(array, order="C", copy=True)


def from_extension(result: Any, like: Any) -> Any:
    """A result of the extension, without a copy, as an array of the kind of `like`."""
    if is_torch(like):
        return sys.modules["torch"].from_dlpack(result)
    import numpy
    return numpy.asarray(result)
