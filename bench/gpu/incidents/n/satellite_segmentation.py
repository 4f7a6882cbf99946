"""Trains a small segmentation net on satellite tiles.

A mosaic canvas (one row of 4 KiB per scan line) is assembled for each group of
training steps: the headers of all scan lines are written into it, and the
sensor values of the tiles in the batch are looked up in it.

usage: satellite_segmentation.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["page-fault"], "culprit": "self", "line": "# FAULT", "compound": False}
import json
import mmap
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

ROW, HEAD, TILE, CLASSES, GROUP = 4096, 16, 256, 8, 4


class Mosaic:
    def __init__(self, rows, fresh, seed):
        self.rows, self.fresh = rows, fresh
        self.rng = np.random.default_rng(seed)
        self.map = self.canvas = None

    def release(self):
        if self.map is not None:
            self.canvas = None
            self.map.close()  # ALT
            self.map = None

    def assemble(self, count):
        if self.fresh:
            self.release()  # ALT
        if self.map is None:
            self.map = mmap.mmap(-1, self.rows * ROW)  # ALT
            self.canvas = np.frombuffer(self.map, dtype=np.uint8).reshape(self.rows, ROW)
        header = self.rng.integers(0, 256, HEAD, dtype=np.uint8)
        self.canvas[:, :HEAD] = header  # FAULT
        return self.canvas[self.rng.integers(0, self.rows, count), :HEAD]


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=stride, padding=1), nn.ReLU(inplace=True))


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.top = nn.Sequential(conv(3, 64), conv(64, 64))
        self.mid = nn.Sequential(conv(64, 128, 2), conv(128, 128), conv(128, 128))
        self.deep = nn.Sequential(conv(128, 256, 2), conv(256, 256), conv(256, 128))
        self.sensor = nn.Linear(HEAD, 128)
        self.merge = conv(128, 64)
        self.out = nn.Conv2d(64, CLASSES, 1)

    def forward(self, x, sensor):
        a = self.top(x)
        b = self.mid(a)
        c = self.deep(b) + self.sensor(sensor)[:, :, None, None]
        b = b + F.interpolate(c, scale_factor=2.0, mode="nearest")
        a = a + F.interpolate(self.merge(b), scale_factor=2.0, mode="nearest")
        return self.out(a)


class Trainer:
    def __init__(self, batch, seed, dev):
        torch.manual_seed(seed)
        self.dev, self.batch = dev, batch
        with torch.device(dev):
            net = Segmenter()
        self.net = net.to(memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self.tiles = [torch.randint(0, 256, (batch, TILE, TILE, 3), dtype=torch.uint8).pin_memory() for _ in range(6)]
        self.masks = [torch.randint(0, CLASSES, (batch, TILE, TILE), dtype=torch.uint8).pin_memory() for _ in range(6)]
        self.side = [torch.zeros(batch, HEAD, dtype=torch.uint8).pin_memory() for _ in range(2 * GROUP)]

    def step(self, i, side=None):
        slot = self.side[i % len(self.side)]
        if side is not None:
            slot.copy_(torch.from_numpy(side))
        x = self.tiles[i % 6].to(self.dev, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
        y = self.masks[i % 6].to(self.dev, non_blocking=True).long()
        s = slot.to(self.dev, non_blocking=True).float().div_(255)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.net(x, s)
        loss = F.cross_entropy(logits.float(), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()


def timed(fn, n=5, warm=3):
    for i in range(warm):
        fn(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def row_cost(seed):
    m = Mosaic(30_000, True, seed)
    m.assemble(8)
    t0 = time.perf_counter()
    for _ in range(3):
        m.assemble(8)
    cost = (time.perf_counter() - t0) / 3 / m.rows
    m.release()
    return cost


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    dev = torch.device("cuda")

    probe = Trainer(8, seed, dev)
    t = timed(probe.step)
    batch = max(2, min(96, round(8 * (0.024 + 0.002 * (seed % 4)) / t)))
    del probe
    torch.cuda.empty_cache()
    trainer = Trainer(batch, seed, dev)
    step_s = timed(trainer.step, n=8)
    rows = int(GROUP * step_s * share / (1 - share) / row_cost(seed))
    rows = max(4000, min(600_000, rows))
    print(f"batch {batch}, {rows} scan lines, {step_s * 1e3:.1f} ms per step", flush=True)

    mosaic = Mosaic(rows, mode == "fault", seed)
    folder = tempfile.mkdtemp(prefix="satseg_")
    steps, value, saver = 0, float("nan"), None
    try:
        sides = mosaic.assemble(GROUP * batch)
        t0 = time.monotonic()
        saved = t0
        while time.monotonic() - t0 < seconds:
            for g in range(GROUP):
                loss = trainer.step(steps, sides[g * batch:(g + 1) * batch])
                steps += 1
            if mode == "fault":
                value = loss.item()
                sides = mosaic.assemble(GROUP * batch)  # ALT
            else:  # same canvas again, filled while the GPU still works
                sides = mosaic.assemble(GROUP * batch)
                value = loss.item()
            if steps % (20 * GROUP) == 0:
                print(f"step {steps} loss {value:.4f}", flush=True)
            if time.monotonic() - saved > 4.0:
                saved = time.monotonic()
                state = {k: v.detach().cpu() for k, v in trainer.net.out.state_dict().items()}
                saver = threading.Thread(target=torch.save, args=(state, os.path.join(folder, "out.pt")))
                saver.start()
    finally:
        if saver is not None:
            saver.join()
        mosaic.release()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "loss": value, "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
