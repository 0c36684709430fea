# SPDX-License-Identifier: Apache-2.0
# The same program as from_horovod.cpp, for Horovod. Run as: mpirun -np 2 python3 from_horovod.py
import horovod.torch as hvd
import torch
from torch.utils.data.distributed import DistributedSampler

EXAMPLES, INPUTS, BATCH, EPOCHS, RATE, WARMUP = 960, 4, 16, 5, 0.02, 20


def example(number):
    x = torch.tensor([((7 * number + 5 * i * i) % 19) / 9.0 - 1.0 for i in range(INPUTS)])
    return x, x.sum() + 1.0 + number * 13 % 7 / 10.0


hvd.init()
model = torch.nn.Linear(INPUTS, 1)
torch.nn.init.constant_(model.weight, hvd.rank())  # wrong on all ranks but 0
torch.nn.init.constant_(model.bias, hvd.rank())
optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), op=hvd.Average
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

sampler = DistributedSampler(
    range(EXAMPLES), num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False
)
step = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    indices = list(sampler)
    total = torch.zeros(1)
    for begin in range(0, len(indices), BATCH):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 + (hvd.size() - 1) * min(step / WARMUP, 1.0))
        x, y = map(torch.stack, zip(*(example(i) for i in indices[begin : begin + BATCH])))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        step += 1
    mean = hvd.allreduce(total / len(indices))
    if hvd.rank() == 0:
        print(f"epoch {epoch + 1}: loss {mean.item():.4f}")

seen = hvd.allgather(torch.tensor([len(indices)]))
if hvd.rank() == 0:
    torch.save(model.state_dict(), "model.pt")
    print(f"{seen.sum().item()} examples in each epoch")
