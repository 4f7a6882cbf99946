"""Two-tower retrieval training with in-batch negatives.

New item ids are counted in an id table (a memory-mapped file) that the trainer
shares with an exporter process, which writes compressed snapshots of it for
the serving fleet; both sides take the file's flock while they use it.

usage: recsys_two_tower.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["lock-wait"], "culprit": "child", "line": "# FAULT", "compound": False}
import fcntl
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ITEMS, EMB, FIELDS, HIDDEN, OUT = 200_000, 128, 4, 4096, 256

EXPORTER = r'''
import fcntl, mmap, os, sys, time, zlib
path, work, gap, inside = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "inside"
table = open(path, "r+b")
view = mmap.mmap(table.fileno(), 0)
parent = os.getppid()

def squeeze(raw, seconds):
    end, i, size = time.perf_counter() + seconds, 0, 0
    while time.perf_counter() < end:
        size += len(zlib.compress(raw[i:i + 32768], 6))
        i = (i + 32768) % len(raw)
    return size

while os.getppid() == parent:
    fcntl.flock(table, fcntl.LOCK_EX)
    raw = bytes(view)
    if inside:
        squeeze(raw, work)
    fcntl.flock(table, fcntl.LOCK_UN)
    if not inside:
        squeeze(raw, work)
    time.sleep(gap)
'''


class IdTable:
    def __init__(self, path):
        with open(path, "wb") as f:
            f.write(np.arange(ITEMS, dtype=np.int64).tobytes())
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 0)
        self.counts = np.frombuffer(self.map, dtype=np.int64)

    def count(self, ids):
        fcntl.flock(self.file, fcntl.LOCK_EX)  # FAULT
        try:
            self.counts[ids] += 1
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)


class Tower(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.table = nn.Embedding(ITEMS, EMB)
        self.table.weight.requires_grad_(False)  # frozen, pretrained
        layers, width = [], FIELDS * EMB
        for _ in range(depth):
            layers += [nn.Linear(width, HIDDEN), nn.ReLU(inplace=True)]
            width = HIDDEN
        self.mlp = nn.Sequential(*layers, nn.Linear(width, OUT))

    def forward(self, ids):
        return F.normalize(self.mlp(self.table(ids).flatten(1)), dim=-1)


class Trainer:
    def __init__(self, depth, batch, seed, dev):
        torch.manual_seed(seed)
        self.dev = dev
        with torch.device(dev):
            self.user, self.item = Tower(depth), Tower(depth)
        params = [p for m in (self.user, self.item) for p in m.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(params, lr=1e-4, fused=True)
        self.labels = torch.arange(batch, device=dev)
        rng = np.random.default_rng(seed)
        self.pool = [torch.from_numpy(rng.integers(0, ITEMS, (2, batch, FIELDS))).pin_memory() for _ in range(16)]
        self.fresh = [np.unique(b[1, :256, 0].numpy()) for b in self.pool]

    def step(self, i):
        ids = self.pool[i % len(self.pool)].to(self.dev, non_blocking=True)
        u, v = self.user(ids[0]), self.item(ids[1])
        loss = F.cross_entropy(u @ v.t() * 20.0, self.labels)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()


def timed(fn, n=6, warm=3):
    for i in range(warm):
        fn(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def save_projection(state, path):
    torch.save(state, path)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")
    batch = 6144 + 512 * (seed % 5)

    t2 = timed(Trainer(2, batch, seed, dev).step)
    t4 = timed(Trainer(4, batch, seed, dev).step)
    per = max(1e-4, (t4 - t2) / 2)
    depth = max(1, min(14, 2 + round((0.022 - t2) / per)))
    torch.cuda.empty_cache()
    trainer = Trainer(depth, batch, seed, dev)
    step_s = timed(trainer.step, n=10)
    print(f"batch {batch} depth {depth}, {step_s * 1e3:.1f} ms per step", flush=True)

    work = 4.0 * step_s
    cycle = 2.5 * step_s / share
    where = "inside" if mode == "fault" else "outside"
    folder = tempfile.mkdtemp(prefix="twotower_")
    exporter = None
    steps, total, saver = 0, 0.0, None
    try:
        path = os.path.join(folder, "ids.bin")
        table = IdTable(path)
        exporter = subprocess.Popen([sys.executable, "-c", EXPORTER, path, str(work), str(max(0.005, cycle - work)),
                                     where])
        time.sleep(0.3)
        prev = None
        t0 = time.monotonic()
        saved = t0
        while time.monotonic() - t0 < seconds:
            table.count(trainer.fresh[steps % len(trainer.fresh)])  # ALT
            loss = trainer.step(steps)
            if prev is not None:  # the meter is one step behind the GPU
                total += prev.item()
            prev = loss
            steps += 1
            if steps % 50 == 0:
                print(f"step {steps} loss {total / max(1, steps - 1):.4f}", flush=True)
            if time.monotonic() - saved > 4.0:
                saved = time.monotonic()
                head = trainer.item.mlp[-1]
                state = {"bias": head.bias.detach().cpu(), "steps": steps}
                saver = threading.Thread(target=save_projection, args=(state, os.path.join(folder, "head.pt")))
                saver.start()
        torch.cuda.synchronize()
    finally:
        if exporter is not None:
            exporter.terminate()
            exporter.wait()
        if saver is not None:
            saver.join()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "loss": total / max(1, steps - 1),
                      "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
