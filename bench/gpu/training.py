"""A small model whose ranks share gradients (DistributedDataParallel) or parameters, too (fully_shard)."""

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, LAYERS_IN_SHARD = 512, 6, 3


def layers(count: int) -> torch.nn.Sequential:
    pairs = [(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(count)]
    return torch.nn.Sequential(*(one for pair in pairs for one in pair))


def replicated() -> torch.nn.Module:
    return DistributedDataParallel(layers(LAYERS).cuda(), device_ids=[0])


def sharded() -> torch.nn.Module:
    parts = [layers(LAYERS_IN_SHARD) for _ in range(LAYERS // LAYERS_IN_SHARD)]
    model = torch.nn.Sequential(*parts).cuda()
    for part in parts:
        fully_shard(part)
    return fully_shard(model)


MODELS = {"ddp": replicated, "fsdp": sharded}
