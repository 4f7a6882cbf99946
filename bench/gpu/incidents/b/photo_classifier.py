"""Trains a classifier on raw camera frames, which DataLoader workers develop into RGB."""
import json
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

# the trainer itself waits in "for images, labels in loader"; the late ones are the workers
TRUTH = {"cause": ["input-starved"], "culprit": "child:pt_data_worker", "line": "# FAULT",
         "waits_at": "for images, labels in loader"}

BATCH = 64
WORKERS = 4


class RawPhotos(Dataset):
    """256 x 256 Bayer frames; the developed picture is 128 x 128 RGB."""

    def __init__(self, seed, denoise_s=0.0):
        rng = np.random.default_rng(seed)
        self.frames = rng.integers(0, 255, (96, 256, 256)).astype(np.float32)
        self.labels = rng.integers(0, 100, 96)
        self.denoise_s = denoise_s

    def __len__(self):
        return 50_000_000

    def __getitem__(self, i):
        raw = self.frames[i % 96]
        rgb = np.stack([raw[0::2, 0::2], raw[0::2, 1::2], raw[1::2, 1::2]])
        channel, deadline = 0, time.perf_counter() + self.denoise_s
        while time.perf_counter() < deadline:       # refine until the quality budget is spent
            plane = rgb[channel]
            rgb[channel] = 0.5 * plane + 0.25 * (np.roll(plane, 1, 0) + np.roll(plane, -1, 0))  # FAULT
            channel = (channel + 1) % 3
        return torch.from_numpy(np.clip(rgb, 0, 255).astype(np.uint8)), int(self.labels[i % 96])


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(3, width // 2, 3, stride=2, padding=1)
        self.widen = nn.Conv2d(width // 2, width, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        x = F.relu(self.widen(F.relu(self.stem(x))))
        for conv in self.body:
            x = x + F.relu(conv(x))
        return self.head(x.mean((2, 3)))


class Trainer:
    def __init__(self, width):
        self.net = Net(width).to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step(self, images, labels):
        images = images.cuda(non_blocking=True).to(torch.bfloat16, memory_format=torch.channels_last)
        loss = F.cross_entropy(self.net(images / 255), labels.cuda(non_blocking=True))
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss


def measure(fn, n):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n


def main(mode, seconds, seed, size="strong"):
    torch.manual_seed(int(seed))
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(256 + 32 * (int(seed) % 3))
    images = torch.randint(0, 255, (BATCH, 3, 128, 128), dtype=torch.uint8).pin_memory()
    labels = torch.randint(0, 100, (BATCH,)).pin_memory()
    measure(lambda: trainer.step(images, labels), 8)
    step_s = measure(lambda: trainer.step(images, labels), 20)

    photos = RawPhotos(int(seed))
    if mode == "fault":
        base_s = measure(lambda: photos[0], 50)
        demand = 1.09 if size == "weak" else 2.2
        photos.denoise_s = max(0.0, demand * step_s * WORKERS / BATCH - base_s)
    loader = DataLoader(photos, batch_size=BATCH, num_workers=WORKERS, pin_memory=True, drop_last=True)

    steps, end = 0, time.time() + float(seconds)
    for images, labels in loader:
        loss = trainer.step(images, labels)
        steps += 1
        if steps % 20 == 0:
            loss.item()
        if time.time() >= end:
            break
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
