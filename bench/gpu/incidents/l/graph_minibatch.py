"""Mini-batch training on a partitioned graph: global node ids are renumbered for each batch.

usage: graph_minibatch.py MODE SECONDS SEED [STRENGTH]
"""
import json
import mmap
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": ["page-fault"], "culprit": "self", "line": "# FAULT", "compound": False}

PART = 512           # nodes per partition
EDGES = 8192         # boundary edges renumbered per batch


class Sampler:
    """One node of every partition makes a batch."""

    def __init__(self, parts, seed, pool=6):
        rng = np.random.default_rng(seed)
        self.parts = parts
        self.total = parts * PART
        first = np.arange(parts, dtype=np.int64) * PART
        self.nodes = [first + rng.integers(PART, size=parts) for _ in range(pool)]
        self.edges = [np.sort(rng.choice(nodes, EDGES)) for nodes in self.nodes]
        self.slots = np.arange(parts, dtype=np.int64)
        self.table = None

    def new_table(self):
        # anonymous map: rows that no batch visits cost nothing
        return np.frombuffer(mmap.mmap(-1, self.total * 8), dtype=np.int64)  # ALT

    def renumber(self, i, reuse):
        if reuse:
            if self.table is None:
                self.table = self.new_table()
            table = self.table
        else:
            table = self.new_table()
        table[self.nodes[i % len(self.nodes)]] = self.slots  # FAULT
        return table[self.edges[i % len(self.edges)]]


class Sage(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, 64)

    def forward(self, x, local):
        for layer in self.layers:
            x = torch.relu(layer(x))
        neighbours = x.index_select(0, local)
        return self.head(neighbours + x[:local.numel()])


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.manual_seed(seed)

    width, rows = 4096, 32768 + 1024 * (seed % 3)
    with torch.device("cuda"):
        model = Sage(width, 6).to(torch.bfloat16)
        features = torch.randn(200_000, width, dtype=torch.bfloat16)
        picks = [torch.randint(200_000, (rows,)) for _ in range(6)]
        labels = torch.randint(64, (EDGES,))
    optim = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    staging = torch.empty(EDGES, dtype=torch.int64).pin_memory()
    staged = staging.numpy()

    def train(i, local):
        np.remainder(local, rows, out=staged)
        index = staging.to("cuda", non_blocking=True)
        out = model(features.index_select(0, picks[i % 6]), index)
        loss = nn.functional.cross_entropy(out, labels)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        return loss.item()

    # training time alone
    small = Sampler(12_000, seed)
    local = small.renumber(0, True)
    times = []
    for i in range(26):
        t = time.perf_counter()
        train(i, local)
        times.append(time.perf_counter() - t)
    step_s = statistics.median(times[16:])
    map_s = step_s * share / (1 - share)

    def cost(sampler):
        times = []
        for i in range(7):
            train(i, local)
            t = time.perf_counter()
            sampler.renumber(i, False)
            times.append(time.perf_counter() - t)
        return statistics.median(times[1:])

    # graph size for which a new table costs map_s
    parts = max(64, round(small.parts * map_s / cost(small)))
    sampler = Sampler(parts, seed)
    parts = max(64, round(parts * map_s / cost(sampler)))
    sampler = Sampler(parts, seed)

    reuse = mode == "healthy"
    for i in range(6):
        train(i, sampler.renumber(i, reuse))
    steps, loss = 0, 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        local = sampler.renumber(steps, reuse)
        loss = train(steps, local)
        steps += 1
    elapsed = time.perf_counter() - start
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * step_s, "nodes": sampler.total, "loss": loss}))


if __name__ == "__main__":
    main()
