# SPDX-License-Identifier: Apache-2.0
"""Kolo for PyTorch: everything of the package, the optimizer, and the state of optimizers. Needs PyTorch 2.1
or newer. Tensors are on the CPU.

The collectives are not recorded for gradients."""

from .. import *  # noqa: F401,F403  pylint: disable=wildcard-import,unused-wildcard-import
from .optimizer import DistributedOptimizer as DistributedOptimizer
from .state import broadcast_optimizer_state as broadcast_optimizer_state
