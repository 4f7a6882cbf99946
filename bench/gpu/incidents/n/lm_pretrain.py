"""Pretrains a small decoder-only language model whose feed-forward part is gated
by a router with several experts' weights; the router's load is watched.

usage: lm_pretrain.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": [["sync-storm"], ["alloc-churn"]], "culprit": "self", "culprits": ["self", "self"],
         "line": "# FAULT", "compound": True}
import json
import os
import shutil
import sys
import tempfile
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, WIDTH, HEADS, LAYERS, CONTEXT = 8192, 2048, 16, 8, 1024


class Block(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.router = nn.Linear(WIDTH, experts)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)  # ALT
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # ALT
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, WIDTH))  # ALT
        h = self.n2(x)  # ALT
        probs = self.router(h).softmax(-1)  # ALT
        load = probs.detach().float().sum((0, 1))  # ALT
        x = x + self.down(F.gelu(self.up(h))) * probs.amax(-1, keepdim=True)  # ALT
        return x, load


class Model(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList([Block(experts) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x, loads = self.emb(ids), []  # ALT
        for block in self.blocks:
            x, load = block(x)  # ALT
            loads.append(load)
        return self.head(self.norm(x)), torch.stack(loads)  # ALT


class Trainer:
    def __init__(self, batch, experts, seed, dev):
        torch.manual_seed(seed)
        self.dev, self.experts = dev, experts
        with torch.device(dev):
            self.model = Model(experts).to(torch.bfloat16)
            self.load_sum = torch.zeros(LAYERS, experts)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.data = [torch.randint(0, VOCAB, (batch, CONTEXT + 1)).pin_memory() for _ in range(12)]
        self.seen = [[0.0] * experts for _ in range(LAYERS)]

    def step(self, i):
        ids = self.data[i % len(self.data)].to(self.dev, non_blocking=True)
        logits, loads = self.model(ids[:, :-1])  # ALT
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())  # ALT
        self.opt.zero_grad(set_to_none=True)
        loss.backward()  # ALT
        self.opt.step()  # ALT
        return loss.detach(), loads

    def watch_each(self, loads):
        for layer in range(LAYERS):
            row, seen = loads[layer], self.seen[layer]
            for e in range(self.experts):
                seen[e] += row[e].item()  # FAULT

    def watch_together(self, loads):
        self.load_sum += loads


def timed(fn, n=6, warm=3):
    for i in range(warm):
        fn(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
        torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def item_cost(dev):
    v = torch.rand(400, device=dev)
    for rep in range(2):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        total = 0.0
        for e in range(400):
            total += v[e].item()
        cost = (time.perf_counter() - t0) / 400
    return cost


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.23 if strength == "strong" else 0.06  # of each of the two
    dev = torch.device("cuda")

    probe = Trainer(8, 32, seed, dev)
    t = timed(probe.step)
    batch = max(2, min(96, round(8 * (0.044 + 0.002 * (seed % 4)) / t)))
    probe = None
    trainer = Trainer(batch, 32, seed, dev)
    step_s = timed(trainer.step)
    each = share * step_s / (1 - 2 * share)
    experts = max(8, 8 * round(each / item_cost(dev) / LAYERS / 8))
    trainer = None
    torch.cuda.empty_cache()
    trainer = Trainer(batch, experts, seed, dev)
    step_s = timed(trainer.step)

    def step_and_clean(i):
        trainer.step(i)
        torch.cuda.empty_cache()

    clean_every = max(1, round((timed(step_and_clean, n=4, warm=1) - step_s) / each))
    for i in range(3):
        trainer.step(i)
    torch.cuda.synchronize()
    print(f"batch {batch} experts {experts}, {step_s * 1e3:.1f} ms per step", flush=True)

    folder = tempfile.mkdtemp(prefix="lm_")
    steps, value, saver = 0, float("nan"), None
    try:
        t0 = time.monotonic()
        saved = t0
        while time.monotonic() - t0 < seconds:
            loss, loads = trainer.step(steps)  # ALT
            steps += 1
            if mode == "fault":
                trainer.watch_each(loads)  # ALT
                if steps % clean_every == 0:
                    torch.cuda.empty_cache()  # FAULT
            else:
                trainer.watch_together(loads)
            if steps % 25 == 0:
                value = loss.item()
                print(f"step {steps} loss {value:.4f}", flush=True)
            if time.monotonic() - saved > 4.0:
                saved = time.monotonic()
                state = {"norm": trainer.model.norm.weight.detach().cpu(), "steps": steps}
                saver = threading.Thread(target=torch.save, args=(state, os.path.join(folder, "norm.pt")))
                saver.start()
        torch.cuda.synchronize()
    finally:
        if saver is not None:
            saver.join()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "loss": value, "clean_every": clean_every,
                      "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
