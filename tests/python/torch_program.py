# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch in place, and its optimizers: all ranks together train as one process with all data."""
import copy
import sys

import kolo_train.torch as kolo
import torch
from check import done, raises

kolo.init()
me, n = kolo.rank(), kolo.size()
torch.manual_seed(me)


def test_tensors():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8):
        tensor = torch.full((3, 4), me + 1).to(dtype)
        address = tensor.data_ptr()
        assert kolo.allreduce_(tensor, op=kolo.Sum) is tensor and tensor.data_ptr() == address
        assert (tensor == n * (n + 1) // 2).all(), dtype
        gathered = kolo.allgather(torch.full((me + 1, 2), me).to(dtype))
        assert gathered.dtype == dtype and gathered.shape == (n * (n + 1) // 2, 2)
        assert gathered[:, 0].tolist() == [rank for rank in range(n) for _ in range(rank + 1)]
    flags = kolo.allreduce(torch.tensor([me == 0, False]), op=kolo.Max)
    assert flags.dtype == torch.bool and flags.tolist() == [True, False]
    recorded = torch.ones(2, requires_grad=True)
    assert kolo.allreduce(recorded).tolist() == [1.0, 1.0]
    assert kolo.broadcast(torch.tensor(me), n - 1) == n - 1
    rows = kolo.reducescatter(torch.ones(2 * n, 2), op=kolo.Sum)
    assert rows.shape == (2, 2) and (rows == n).all()
    results = kolo.grouped_allreduce([torch.ones(3), torch.ones(2, dtype=torch.int32)], op=kolo.Sum)
    assert [result.sum().item() for result in results] == [3 * n, 2 * n]
    with raises(ValueError, "contiguous"):
        kolo.allreduce_(torch.ones(3, 3).t()[1:])


def model_of():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(16, 3))


def batch(step, rank):
    number = torch.arange(6 * 16).reshape(6, 1, 4, 4).float()
    return ((number * (step + 3) + 5 * rank) % 11) / 11.0, (torch.arange(6) + rank + step) % 3


def loss_of(model, data):
    return torch.nn.functional.cross_entropy(model(data[0]), data[1])


def train(optimizer_of, passes=1, steps=4, uses_no_sync=False, clips=False, **options):
    """Trains on all ranks and, beside it, in this process with the data of all ranks. Compares."""
    model = model_of()
    if me == 0:
        model = model.to(memory_format=torch.channels_last)
    single = model_of()
    optimizer = kolo.DistributedOptimizer(
        optimizer_of(model.parameters()), named_parameters=model.named_parameters(),
        backward_passes_per_step=1 if uses_no_sync else passes, **options)
    kolo.broadcast_parameters(model.state_dict(), root_rank=0)
    single.load_state_dict(model.state_dict())
    reference = optimizer_of(single.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    reference_scheduler = torch.optim.lr_scheduler.StepLR(reference, 2)
    assert isinstance(optimizer, type(reference))
    for step in range(steps):
        optimizer.zero_grad()
        reference.zero_grad()
        for k in range(passes):
            if uses_no_sync and k < passes - 1:
                with optimizer.no_sync():
                    loss_of(model, batch(step * passes + k, me)).backward()
            else:
                loss_of(model, batch(step * passes + k, me)).backward()
            for rank in range(n):
                (loss_of(single, batch(step * passes + k, rank)) / n).backward()
        if clips:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            torch.nn.utils.clip_grad_norm_(single.parameters(), 0.1)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        reference.step()
        scheduler.step()
        reference_scheduler.step()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, single.get_parameter(name), atol=2e-3 if options else 1e-5), name
    kolo.require_equal(model.named_parameters())
    return model, optimizer


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def test_optimizer():
    train(sgd)
    train(adam)
    train(sgd, passes=3)
    train(sgd, passes=3, uses_no_sync=True)
    train(sgd, clips=True)
    train(sgd, compression=kolo.Compression.bf16)
    train(sgd, gradient_predivide_factor=float(n))
    model, optimizer = train(sgd)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch(0, me))
        loss.backward()
        return loss
    optimizer.step(closure)
    kolo.require_equal(model.named_parameters())


def test_unused_parameters():
    """Each rank uses one layer; the others' gradients count as zeros."""
    layers = torch.nn.ModuleList(torch.nn.Linear(2, 1, bias=False) for _ in range(n + 1))
    kolo.broadcast_parameters(layers.state_dict())
    before = copy.deepcopy(layers)
    optimizer = kolo.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=1.0), layers.named_parameters())
    layers[me](torch.ones(2)).sum().backward()
    optimizer.step()
    for rank in range(n):
        assert torch.allclose(layers[rank].weight, before[rank].weight - 1.0 / n)
    assert torch.equal(layers[n].weight, before[n].weight)


def test_process_set():
    half = kolo.add_process_set(range((n + 1) // 2))
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = kolo.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), process_set=half)
    (weight * float(me + 1)).sum().backward()
    optimizer.step()
    expected = sum(rank + 1 for rank in half.ranks) / half.size() if half.included() else me + 1
    assert torch.allclose(weight, torch.full((2,), -float(expected)))
    kolo.remove_process_set(half)


def test_state():
    """The root has a state, the other ranks have none."""
    model = model_of()
    kolo.broadcast_parameters(model.named_parameters())
    optimizer = adam(model.parameters())
    if me == 0:
        loss_of(model, batch(0, 0)).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.25
    kolo.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state_dict()
    assert state["param_groups"][0]["lr"] == 0.25 and len(state["state"]) == 4
    kolo.require_equal([(f"{i}.{key}", value) for i, entry in state["state"].items()
                        for key, value in entry.items()])


def test_mistakes():
    weight = torch.nn.Parameter(torch.full((2,), float(me)))
    optimizer = kolo.DistributedOptimizer(sgd([weight]), [("weight", weight)])
    with raises(kolo.InvalidArgument, "already"):
        kolo.DistributedOptimizer(optimizer)
    (weight * 2).sum().backward()
    if n > 1:  # broadcast_parameters was forgotten
        with raises(kolo.Mismatch, "weight"):
            optimizer.step()
    else:
        optimizer.step()
    kolo.barrier()
    (weight * 2).sum().backward()
    with raises(kolo.InvalidArgument, "zero_grad was called"):
        optimizer.zero_grad()
    with raises(kolo.InvalidArgument, "the gradient of weight was computed again"):
        (weight * 2).sum().backward()
    optimizer.step()
    with raises(kolo.InvalidArgument, "lacks 1 parameters"):
        kolo.DistributedOptimizer(sgd([torch.nn.Parameter(torch.ones(1))]), [])
    scheduled = sgd([torch.nn.Parameter(torch.ones(1))])
    torch.optim.lr_scheduler.StepLR(scheduled, 2)
    with raises(kolo.InvalidArgument, "scheduler"):
        kolo.DistributedOptimizer(scheduled)


torch.set_num_threads(1)
for test in (test_tensors, test_optimizer, test_unused_parameters, test_process_set, test_state, test_mistakes):
    test()
done("all trainings are right")
sys.stdout.flush()
