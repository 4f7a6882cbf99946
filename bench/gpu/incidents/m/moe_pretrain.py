"""Pretrain a small mixture-of-experts language model with a router dashboard.

usage: moe_pretrain.py MODE SECONDS SEED [STRENGTH]
"""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TRUTH = {"cause": ["sync-storm"], "culprit": "self", "line": "# FAULT", "compound": False}

DEV = "cuda"
DIM, HIDDEN, EXPERTS, DEPTH, VOCAB = 1024, 2048, 32, 10, 8192


class Corpus(IterableDataset):
    def __init__(self, tokens, seed):
        self.tokens, self.seed = tokens, seed

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng([self.seed, info.id if info else 0])
        while True:
            text = torch.from_numpy(rng.integers(0, VOCAB, self.tokens + 1))
            yield text[:-1].clone(), text[1:].clone()


class MoE(nn.Module):
    """Expert-choice layer: every expert takes the tokens that like it most."""

    def __init__(self, capacity):
        super().__init__()
        self.capacity = capacity
        self.router = nn.Parameter(torch.randn(DIM, EXPERTS) * DIM ** -0.5)
        self.up = nn.Parameter(torch.randn(EXPERTS, DIM, HIDDEN) * DIM ** -0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, DIM) * HIDDEN ** -0.5)
        self.probs = self.first = None

    def forward(self, x):
        h = F.layer_norm(x, (DIM,))
        probs = (h @ self.router).float().softmax(-1)
        gate, pick = probs.t().contiguous().topk(self.capacity, dim=1)
        flat = pick.reshape(-1)
        taken = h.index_select(0, flat).view(EXPERTS, self.capacity, DIM)
        made = torch.bmm(F.gelu(torch.bmm(taken, self.up)), self.down)
        made = made * gate.unsqueeze(-1).to(made.dtype)
        self.probs, self.first = probs.detach(), probs.detach().argmax(1)
        return x.index_add(0, flat, made.reshape(-1, DIM))


class Model(nn.Module):
    def __init__(self, capacity):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(MoE(capacity) for _ in range(DEPTH))
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, target):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(F.layer_norm(x, (DIM,))).float(), target)


def dashboard(layers, watched, tokens):
    """Load and confidence of the watched experts; returns the crowded ones."""
    crowded = []
    for depth, expert in watched:
        layer = layers[depth]
        load = (layer.first == expert).sum().item()  # FAULT
        peak = layer.probs[:, expert].max().item()  # FAULT
        mean = layer.probs[:, expert].mean().item()  # FAULT
        if load > 4 * tokens / EXPERTS or peak > 0.999 or mean < 1e-6:
            crowded.append((depth, expert))
    return crowded


def dashboard_at_once(layers, tokens):
    """The same for all experts of all layers, one transfer."""
    probs = torch.stack([layer.probs for layer in layers])
    first = torch.stack([layer.first for layer in layers])
    load = (first.unsqueeze(2) == torch.arange(EXPERTS, device=DEV)).sum(1).float()
    table = torch.stack([load, probs.amax(1), probs.mean(1)], 2).tolist()
    return [(d, e) for d, row in enumerate(table) for e, (n, peak, mean) in enumerate(row)
            if n > 4 * tokens / EXPERTS or peak > 0.999 or mean < 1e-6]


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.42 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.115
    torch.manual_seed(seed)
    tokens = 15360 + 512 * (seed % 3)
    loader = DataLoader(Corpus(tokens, seed), batch_size=None, num_workers=2, pin_memory=True,
                        prefetch_factor=4, multiprocessing_context="fork")
    batches = iter(loader)  # the workers start before this process uses the GPU

    with torch.device(DEV):
        model = Model(2 * tokens // EXPERTS).to(torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    accumulate = 1

    def train_step():
        opt.zero_grad(set_to_none=True)
        for _ in range(accumulate):
            ids, target = next(batches)
            loss = model(ids.to(DEV, non_blocking=True), target.to(DEV, non_blocking=True))
            (loss / accumulate).backward()
        opt.step()
        return loss.item()

    def mean_time(fn, span):
        n, t0 = 0, time.perf_counter()
        while time.perf_counter() - t0 < span:
            fn()
            n += 1
        return (time.perf_counter() - t0) / n

    mean_time(train_step, 0.8)
    accumulate = max(1, round(0.030 / mean_time(train_step, 0.4)))
    mean_time(train_step, 0.5)
    gpu_step = mean_time(train_step, 1.0)

    # watch as many experts as the dashboard has room for
    order = [(d, e) for e in range(EXPERTS) for d in range(DEPTH)]
    mean_time(lambda: dashboard(model.layers, order[:8], tokens), 0.2)
    look = mean_time(lambda: dashboard(model.layers, order[:40], tokens), 0.5) / 40
    span = share * gpu_step / (0.8 - share)
    watched = [order[i % len(order)] for i in range(max(4, round(span / look)))]
    if mode != "fault":
        mean_time(lambda: dashboard_at_once(model.layers, tokens), 0.1)

    steps, total, crowded, start = 0, 0.0, 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        total += train_step()
        if mode == "fault":
            crowded += len(dashboard(model.layers, watched, tokens))
        else:
            crowded += len(dashboard_at_once(model.layers, tokens))
        steps += 1
    wall = time.perf_counter() - start
    del batches
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / steps,
                      "gpu_step_ms": 1e3 * gpu_step, "accumulate": accumulate,
                      "watched": len(watched), "look_us": 1e6 * look, "crowded": crowded,
                      "loss": total / steps}))


if __name__ == "__main__":
    main()
