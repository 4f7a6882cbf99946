"""Distils a large pathology encoder into a small conv net.

Tissue patches come augmented from DataLoader workers; the features that the
large encoder gave for the slide are kept in host memory and sent along.

usage: pathology_distill.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": [["input-starved"], ["pageable-copy"]], "culprit": ["child", "self"], "culprits": ["child", "self"],
         "line": "# FAULT", "compound": True}
import json
import os
import shutil
import sys
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PATCH, CHANNELS, FEATS, WORKERS = 64, 128, 1024, 4


class Patches(Dataset):
    """One item is a whole batch of augmented patches."""

    def __init__(self, batch, seconds_per_batch, seed):
        self.batch, self.cost, self.seed = batch, seconds_per_batch, seed

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        end = time.perf_counter() + self.cost
        rng = np.random.default_rng(self.seed * 1_000_003 + i)
        x = rng.integers(0, 256, (self.batch, 3, PATCH, PATCH), dtype=np.uint8)
        y = rng.integers(0, 4, self.batch)
        j = 0
        while time.perf_counter() < end:  # stain jitter and flips, patch by patch
            p = x[j % self.batch].astype(np.float32)
            p = np.rot90(p, axes=(1, 2)) * np.float32(0.95) + np.sqrt(p)
            x[j % self.batch] = np.clip(p, 0, 255).astype(np.uint8)
            j += 1
        return torch.from_numpy(x), torch.from_numpy(y)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return x + F.relu(self.conv(x), inplace=True) * 0.1


class Student(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.body = nn.Sequential(*[Residual() for _ in range(depth)])
        self.feats = nn.Linear(CHANNELS, FEATS)
        self.head = nn.Linear(FEATS, 4)

    def forward(self, x):
        f = self.feats(self.body(self.stem(x)).mean((2, 3)))
        return f, self.head(f)


class Trainer:
    def __init__(self, depth, batch, seed, dev):
        torch.manual_seed(seed)
        self.dev = dev
        with torch.device(dev):
            net = Student(depth)
        self.net = net.to(memory_format=torch.channels_last)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.stage = [(torch.zeros(batch, 3, PATCH, PATCH, dtype=torch.uint8).pin_memory(),
                       torch.zeros(batch, dtype=torch.long).pin_memory(), torch.cuda.Event()) for _ in range(3)]

    def upload(self, i, batch):
        x, y, sent = self.stage[i % 3]
        sent.synchronize()
        if batch is not None:
            x.copy_(batch[0])
            y.copy_(batch[1])
        out = x.to(self.dev, non_blocking=True), y.to(self.dev, non_blocking=True)
        sent.record()
        return out

    def step(self, i, batch, teacher):
        x, y = self.upload(i, batch)
        x = x.float().div_(255).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            feats, logits = self.net(x)
        slide = teacher.view(-1, FEATS).mean(0)
        loss = F.cross_entropy(logits.float(), y) + 0.1 * (feats.float() - slide).square().mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()


class TeacherPrefetch:
    """Pinned slide features, copied one step ahead on an own stream."""

    def __init__(self, slides, dev):
        self.slides = [torch.from_numpy(s).pin_memory() for s in slides]
        self.dev, self.stream, self.next = dev, torch.cuda.Stream(), None
        self.load(0)

    def load(self, i):
        with torch.cuda.stream(self.stream):
            self.next = self.slides[i % len(self.slides)].to(self.dev, non_blocking=True)

    def get(self, i):
        torch.cuda.current_stream().wait_stream(self.stream)
        now = self.next
        now.record_stream(torch.cuda.current_stream())
        self.load(i + 1)
        return now


def timed(fn, n=6, warm=3):
    for i in range(warm):
        fn(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.25 if strength == "strong" else 0.065  # of each of the two
    dev = torch.device("cuda")
    batch = 128 + 16 * (seed % 4)

    small = torch.zeros(8 * FEATS, device=dev)
    t = [timed(lambda i, tr=Trainer(d, batch, seed, dev): tr.step(i, None, small)) for d in (2, 6)]
    per = max(1e-5, (t[1] - t[0]) / 4)
    depth = max(1, min(60, 2 + round((0.022 - t[0]) / per)))
    torch.cuda.empty_cache()
    trainer = Trainer(depth, batch, seed, dev)
    step_s = timed(lambda i: trainer.step(i, None, small), n=10)

    period = step_s / (1 - 2 * share)
    sample = np.ones(16 * 1024 * FEATS, dtype=np.float32)  # 64 MiB
    copy_s = timed(lambda i: torch.from_numpy(sample).to(dev), n=4, warm=2)
    rows = max(64, min(98304, int(16 * 1024 * share * period / copy_s)))
    rng = np.random.default_rng(seed)
    slides = [np.tile(rng.standard_normal(FEATS, dtype=np.float32), rows) for _ in range(3)]
    print(f"batch {batch} depth {depth}, {rows} slide rows, {step_s * 1e3:.1f} ms per step", flush=True)

    cost = WORKERS * (period if mode == "fault" else 0.4 * step_s)
    loader = DataLoader(Patches(batch, cost, seed), batch_size=None, num_workers=WORKERS, prefetch_factor=2)
    folder = tempfile.mkdtemp(prefix="distil_")
    steps, value, saver, it = 0, float("nan"), None, None
    try:
        teacher = None if mode == "fault" else TeacherPrefetch(slides, dev)
        it = iter(loader)
        for i in range(4):  # the first batches, outside of the clock
            trainer.step(i, next(it), small)
        torch.cuda.synchronize()
        t0 = time.monotonic()
        saved = t0
        while time.monotonic() - t0 < seconds:
            data = next(it)  # FAULT
            if mode == "fault":
                slide = torch.from_numpy(slides[steps % 3]).to(dev)  # FAULT
            else:
                slide = teacher.get(steps)
            loss = trainer.step(steps, data, slide)
            steps += 1
            if steps % 25 == 0:
                value = loss.item()
                print(f"step {steps} loss {value:.4f}", flush=True)
            if time.monotonic() - saved > 4.0:
                saved = time.monotonic()
                state = {k: v.detach().cpu() for k, v in trainer.net.head.state_dict().items()}
                saver = threading.Thread(target=torch.save, args=(state, os.path.join(folder, "head.pt")))
                saver.start()
        torch.cuda.synchronize()
    finally:
        if saver is not None:
            saver.join()
        del it
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "loss": value, "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
