"""Segment scan volumes with a patch transformer; one probability volume per structure.

usage: segment_volumes.py MODE SECONDS SEED [STRENGTH]
"""
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["alloc-churn"], "culprit": "self", "line": "# FAULT", "compound": False}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PatchNet(nn.Module):
    def __init__(self, width=1536, layers=15, patch=1024):
        super().__init__()
        self.inp = nn.Linear(patch, width)
        self.blocks = nn.ModuleList(Block(width, 12) for _ in range(layers))
        self.out = nn.Linear(width, patch)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Job:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.regions, self.patches = 30 + 2 * (seed % 3), 512
        with torch.device("cuda"):
            self.net = PatchNet().to(torch.bfloat16)
            self.scans = [torch.randn(self.regions, self.patches, 1024, dtype=torch.bfloat16)
                          for _ in range(6)]
        self.structures = 8

    def volume(self, i, tidy):
        # float probability volume for each structure, filled at the end
        shape = (self.regions, self.patches, 1024)
        maps = [torch.empty(shape, device="cuda") for _ in range(self.structures)]  # ALT
        score = self.net(self.scans[i % 6]).float()
        for k, out in enumerate(maps):
            torch.mul(score, 1.0 / (k + 1), out=out)
        found = maps[i % len(maps)].mean().item()
        del maps, out, score
        if tidy:
            # leave the memory to the other jobs on this card
            torch.cuda.empty_cache()  # FAULT
        return found


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.set_grad_enabled(False)
    job = Job(seed)

    def timed(count, skip, tidy):
        times = []
        for i in range(count):
            t = time.perf_counter()
            job.volume(i, tidy)
            times.append(time.perf_counter() - t)
        return statistics.median(times[skip:])

    # time per volume, with and without giving the memory back
    timed(16, 0, False)
    extra = {}
    for structures in (8, 40):
        job.structures = structures
        plain = timed(8, 3, False)
        extra[structures] = timed(8, 2, True) - plain
    slope = (extra[40] - extra[8]) / 32
    fixed = max(0.0, extra[8] - 8 * slope)
    if slope <= 0:
        raise RuntimeError("allocation times make no sense: %r" % extra)
    # memory goes back after every `every` volumes
    budget_s = plain * share / (1 - share)
    every = max(1, math.ceil(1.3 * (fixed + slope) / budget_s))
    for _ in range(2):
        job.structures = max(1, round((every * budget_s - fixed) / slope))
        plain = timed(8, 4, False)
        budget_s = plain * share / (1 - share)
        churn = timed(8, 2, True) - plain
        slope *= max(0.25, min(4.0, churn / (fixed + slope * job.structures)))
    job.structures = max(1, round((every * budget_s - fixed) / slope))

    tidy = mode == "fault"
    for i in range(4):
        job.volume(i, tidy)
    steps, found = 0, 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        found = job.volume(steps, tidy and steps % every == 0)
        steps += 1
    elapsed = time.perf_counter() - start
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * plain, "structures": job.structures,
                      "every": every, "found": found}))


if __name__ == "__main__":
    main()
