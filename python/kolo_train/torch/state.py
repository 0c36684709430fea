# SPDX-License-Identifier: Apache-2.0
"""The state of optimizers."""

import dataclasses
from typing import Any

import torch

from ..objects import broadcast_object, broadcast_parameters
from ..process_sets import ProcessSet, global_process_set
from ..session import rank


@dataclasses.dataclass
class _Place:
    """Stands for a tensor in a state that travels as an object."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def _map(value: Any, change: Any, path: str = "") -> Any:
    """The state with every value at its path changed."""
    if isinstance(value, dict):
        return {key: _map(entry, change, f"{path}.{key}") for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(entry, change, f"{path}.{i}") for i, entry in enumerate(value))
    return change(value, path)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0,
                              process_set: ProcessSet = global_process_set) -> None:
    """Copies the state and the options of `root_rank`'s optimizer to every rank. Tensors do not travel
    as pickles."""
    tensors: dict[str, torch.Tensor] = {}
    own = rank() == root_rank

    def take(value: Any, path: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors[path] = value.detach().cpu().contiguous()
        return _Place(path, tuple(value.shape), value.dtype)

    state = broadcast_object(_map(optimizer.state_dict(), take) if own else None, root_rank,
                             process_set=process_set)

    def give(value: Any, _: str) -> Any:
        if not isinstance(value, _Place):
            return value
        if value.name not in tensors:
            tensors[value.name] = torch.empty(value.shape, dtype=value.dtype)
        return tensors[value.name]

    state = _map(state, give)
    broadcast_parameters(tensors, root_rank, process_set)
    if not own:
        optimizer.load_state_dict(state)
