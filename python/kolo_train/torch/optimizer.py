# SPDX-License-Identifier: Apache-2.0
"""The optimizer for PyTorch: gradients are reduced while the backward pass runs."""

import contextlib
from typing import Any, Callable, Iterable, Iterator, Optional, TypeVar

import torch

from ..collectives import Average, Compression, ReduceOp, allreduce_async_
from ..errors import InvalidArgument
from ..objects import require_equal
from ..process_sets import ProcessSet, global_process_set
from ..requests import Request

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)


class _Reducer:
    """Reduces the gradients of one optimizer's parameters."""

    def __init__(self, parameters: list[tuple[str, torch.Tensor]], passes: int, compare: bool,
                 sparse_as_dense: bool, options: dict[str, Any]) -> None:
        self.names = {parameter: name for name, parameter in parameters}
        self.passes = passes
        self.compares = compare
        self.sparse_as_dense = sparse_as_dense
        self.options = options
        self.counts = dict.fromkeys(self.names, 0)
        self.requests: dict[torch.Tensor, tuple[Request[Any], torch.Tensor]] = {}
        self.pauses = False
        self.is_reduced = False
        for parameter in self.names:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter: torch.Tensor) -> None:
        """PyTorch calls this when a parameter's gradient of a backward pass is complete."""
        self.is_reduced = False
        if self.pauses:
            return
        if parameter in self.requests:
            raise InvalidArgument(
                f"the gradient of {self.names[parameter]} was computed again before the step: with "
                "several backward passes per step set backward_passes_per_step, or use no_sync()",
                self.names[parameter])
        self.counts[parameter] += 1
        if self.counts[parameter] == self.passes:
            self.submit(parameter)

    def submit(self, parameter: torch.Tensor) -> None:
        """Begins the reduction of one gradient, in place unless it has gaps."""
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        gradient = parameter.grad
        if gradient.is_sparse:
            if not self.sparse_as_dense:
                raise InvalidArgument(
                    f"the gradient of {self.names[parameter]} is sparse: set sparse_as_dense",
                    self.names[parameter])
            gradient = parameter.grad = gradient.to_dense()
        sent = gradient.detach().contiguous()
        request = allreduce_async_(sent, name="gradient." + self.names[parameter], **self.options)
        self.requests[parameter] = request, sent

    def reduce(self) -> None:
        """Waits for all gradients. Those that this rank has not computed count as they are, or as
        zeros, because other ranks may have them."""
        if self.is_reduced:
            return
        for parameter in self.names:
            if parameter not in self.requests:
                self.submit(parameter)
        requests, self.requests = self.requests, {}
        self.counts = dict.fromkeys(self.names, 0)
        error: Optional[Exception] = None
        for parameter, (request, sent) in requests.items():
            try:
                request.wait()
            except Exception as failure:  # the others complete, on all ranks
                error = error or failure
                continue
            if parameter.grad is not None and sent.data_ptr() != parameter.grad.data_ptr():
                parameter.grad.copy_(sent)
        if error is not None:
            raise error
        if self.compares:
            self.compares = False
            require_equal([(name, parameter) for parameter, name in self.names.items()],
                          self.options["process_set"])
        self.is_reduced = True


class _Distributed:
    """What `DistributedOptimizer` adds to the class of an optimizer."""

    _kolo: _Reducer

    def synchronize(self) -> None:
        """Waits until all gradients are reduced, for programs that look at them before the step. The
        step does not reduce them again."""
        self._kolo.reduce()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For programs written for Horovod: a `step` after `synchronize` reduces nothing anyway."""
        if not self._kolo.is_reduced:
            raise InvalidArgument("skip_synchronize: call synchronize() before")
        yield

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in this block only accumulate gradients on this rank."""
        before, self._kolo.pauses = self._kolo.pauses, True
        try:
            yield
        finally:
            self._kolo.pauses = before

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Reduces the gradients, and updates the parameters."""
        if closure is None:
            self._kolo.reduce()
            result = super().step()  # type: ignore[misc]
        else:
            def reducing() -> Any:
                loss = closure()
                self._kolo.reduce()
                return loss
            result = super().step(reducing)  # type: ignore[misc]
        self._kolo.is_reduced = False
        return result

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's, but not between the backward pass and the step."""
        if self._kolo.requests:
            raise InvalidArgument(
                "zero_grad was called while gradients are reduced: call step() or synchronize() before")
        super().zero_grad(*args, **kwargs)  # type: ignore[misc]


def _names(optimizer: torch.optim.Optimizer,
           named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]
           ) -> list[tuple[str, torch.Tensor]]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        named = [(f"{number}", parameter) for number, parameter in enumerate(parameters)]
    else:
        given = {parameter: name for name, parameter in named_parameters}
        missing = [parameter for parameter in parameters if parameter not in given]
        if missing:
            raise InvalidArgument(f"named_parameters lacks {len(missing)} parameters of the optimizer")
        named = [(given[parameter], parameter) for parameter in parameters]
    if len({name for name, _ in named}) < len(named):
        raise InvalidArgument("named_parameters: the names must differ")
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]


def DistributedOptimizer(  # noqa: N802  pylint: disable=invalid-name
        optimizer: AnyOptimizer, named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
        compression: Compression = Compression.none, backward_passes_per_step: int = 1,
        op: ReduceOp = Average, gradient_predivide_factor: float = 1.0, *,
        sparse_as_dense: bool = False, compare_at_start: bool = True,
        process_set: ProcessSet = global_process_set) -> AnyOptimizer:
    """Makes an optimizer of PyTorch reduce its gradients over all ranks. Returns the same object, whose
    class is now derived from its former one. Create learning-rate schedulers after this call.

    named_parameters:  `model.named_parameters()`. Without it, parameters are matched by their order.
    backward_passes_per_step: gradients are reduced during the last of so many passes, which add up.
    gradient_predivide_factor: gradients are divided by it before the sum, and averages multiplied
                       after it.
    compare_at_start:  after the first reduction, raises `Mismatch` on all ranks if their parameters
                       differ.
    process_set:       the ranks that train together; the optimizer of any other rank is not wrapped.

    Every rank reduces the gradients of all parameters in each step: those that it has not computed count as
    zeros.
    """
    if backward_passes_per_step < 1:
        raise InvalidArgument("backward_passes_per_step must be at least 1")
    if "step" in vars(optimizer):
        raise InvalidArgument("create the learning-rate scheduler after DistributedOptimizer")
    if isinstance(optimizer, _Distributed):
        raise InvalidArgument("this is a DistributedOptimizer already")
    parameters = _names(optimizer, named_parameters)
    if not process_set.included():
        return optimizer
    options = {"op": op, "compression": compression, "process_set": process_set,
               "prescale_factor": 1.0 / gradient_predivide_factor,
               "postscale_factor": gradient_predivide_factor}
    reducer = _Reducer(parameters, backward_passes_per_step, compare_at_start, sparse_as_dense, options)
    before = type(optimizer)
    optimizer.__class__ = type("Distributed" + before.__name__, (_Distributed, before), {})
    optimizer._kolo = reducer
    return optimizer
