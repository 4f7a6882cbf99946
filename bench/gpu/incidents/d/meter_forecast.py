"""Forecasts power consumption: windows of meter readings come from a memory-mapped file, read in this process."""
import json
import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["page-fault"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

METERS, READINGS, SPAN, BLOCK, BLOCKS = 65536, 4096, 64, 2048, 16


class MeterWindows(Dataset):
    """One item is a block of windows, all of the same hours, from random meters."""

    def __init__(self, path, seed):
        self.path, self.rng = path, np.random.default_rng(seed)
        self.kept = self.open()
        self.reopen_per_block, self.due = 0.0, 0.0

    def open(self):
        return np.memmap(self.path, np.float32, "r", shape=(METERS, READINGS))

    def __len__(self):
        return BLOCKS * 1_000_000

    def __getitem__(self, number):
        readings = self.kept
        self.due += self.reopen_per_block
        if self.due >= 1.0:
            self.due -= 1.0
            readings = self.open()  # ALT
        meters = self.rng.integers(0, METERS, BLOCK)
        start = int(self.rng.integers(READINGS - SPAN))
        windows = np.array(readings[meters, start:start + SPAN])  # FAULT
        return torch.from_numpy(windows)


def write_readings(path, seed):
    rng = np.random.default_rng(seed)
    some = rng.standard_normal((METERS // 16, READINGS), dtype=np.float32)
    with open(path, "wb") as file:
        for _ in range(16):
            some.tofile(file)


class Forecaster(nn.Module):
    def __init__(self, width=2048, depth=16):
        super().__init__()
        self.stem, self.head = nn.Linear(SPAN - 8, width), nn.Linear(width, 8)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])

    def forward(self, past):
        x = self.stem(past)
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.head(x)


class Training:
    def __init__(self, windows, seed):
        torch.manual_seed(seed)
        self.batches = iter(DataLoader(windows, batch_size=BLOCKS, num_workers=0, pin_memory=True))
        self.model = Forecaster().to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 500, 0.9)
        self.ready, self.steps, self.average = next(self.batches), 0, 1.0

    def launch(self, windows):
        windows = windows.to("cuda", non_blocking=True).flatten(0, 1).bfloat16()
        loss = F.mse_loss(self.model(windows[:, :-8]).float(), windows[:, -8:].float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def step(self):
        begin = time.perf_counter()
        loss = self.launch(self.ready)
        self.ready = next(self.batches)
        host_s = time.perf_counter() - begin
        self.average += 0.05 * (loss.item() - self.average)
        self.steps += 1
        if self.steps % 200 == 0:
            print(f"step {self.steps} loss {self.average:.4f}", flush=True)
        return host_s

    def measure(self, count):
        begin = time.perf_counter()
        host_s = sum(self.step() for _ in range(count)) / count
        return host_s, (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    ratio = 0.12 if sys.argv[4:5] == ["weak"] else 0.8
    with tempfile.TemporaryDirectory(dir=".", prefix="meters-") as folder:
        path = os.path.join(folder, "readings.f32")
        write_readings(path, seed)
        windows = MeterWindows(path, seed)
        training = Training(windows, seed)
        training.measure(20)
        host_s, step_s = training.measure(20)
        if mode == "fault":
            windows.reopen_per_block = 1.0
            training.measure(3)
            fresh_s, _ = training.measure(15)
            wanted_s = (1.0 + ratio) * step_s - host_s
            windows.reopen_per_block = min(1.0, max(0.0, wanted_s / (fresh_s - host_s)))
        first, end = training.steps, time.perf_counter() + seconds
        while time.perf_counter() < end:
            training.step()
        steps = training.steps - first
    print(json.dumps({"steps": steps}))


main()
