"""Keyword spotting: a transformer over log-mel features that two loader workers prepare."""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["input-starved"], "culprit": ["child:pt_data_worker", "child:python3"],
         "line": "# FAULT", "alt_line": "# ALT"}

CLIPS, BATCH, BANDS, FRAMES, WORDS = 512, 32, 80, 600, 35
HOP, WINDOW, PATCH = 160, 400, 100


class SpeechCommands(Dataset):
    """One item is one batch; `refresh_s` is how long noisy patches are mixed in anew."""

    def __init__(self, seed, refresh_s=0.0):
        rng = np.random.default_rng(seed)
        self.seed, self.refresh_s = seed, refresh_s
        self.features = rng.standard_normal((CLIPS, BANDS, FRAMES), dtype=np.float32).astype(np.float16)
        self.labels = rng.integers(0, WORDS, CLIPS)
        self.noise = rng.standard_normal((48, HOP * PATCH + WINDOW)).astype(np.float32)
        self.hann = np.hanning(WINDOW).astype(np.float32)
        self.edges = np.unique(np.geomspace(1, WINDOW // 2, BANDS + 1).astype(int))[:-1]

    def __len__(self):
        return 1_000_000

    def log_mel(self, wave):
        frames = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP][:PATCH]
        power = np.abs(np.fft.rfft(frames * self.hann)) ** 2  # ALT
        return np.log1p(np.add.reduceat(power, self.edges, axis=1)).T

    def __getitem__(self, number):
        until = time.perf_counter() + self.refresh_s
        rng = np.random.default_rng((self.seed, number))
        clips = rng.integers(0, CLIPS, BATCH)
        batch = self.features[clips]
        while time.perf_counter() < until:
            mel = self.log_mel(self.noise[rng.integers(len(self.noise))] * rng.uniform(0.5, 2))
            row, start = rng.integers(BATCH), rng.integers(FRAMES - PATCH)
            batch[row, :len(mel), start:start + PATCH] = mel
        return torch.from_numpy(batch), torch.from_numpy(self.labels[clips])


class Spotter(nn.Module):
    def __init__(self, width=1024, layers=16):
        super().__init__()
        self.stem = nn.Conv1d(BANDS, width, 3, padding=1)
        block = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, features):
        x = self.stem(features).transpose(1, 2)
        return self.head(self.blocks(x).mean(1))


def train_step(model, optimizer, features, labels):
    features = features.to("cuda", non_blocking=True).float()
    labels = labels.to("cuda", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(features).float(), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    dataset = SpeechCommands(seed)
    model = Spotter().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    sample = dataset[0]
    for _ in range(6):
        train_step(model, optimizer, *sample)
    begin = time.perf_counter()
    for _ in range(12):
        train_step(model, optimizer, *sample)
    step_s = (time.perf_counter() - begin) / 12

    workers = 2
    if mode == "fault":
        dataset.refresh_s = workers * step_s * (1.7 if strength == "strong" else 1.125) - 0.002
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, prefetch_factor=1,
                        multiprocessing_context="fork")
    batches = iter(loader)
    for _ in range(2 * workers):
        next(batches)

    steps, losses = 0, []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        features, labels = next(batches)  # FAULT
        losses.append(train_step(model, optimizer, features, labels))
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps} loss {sum(losses[-50:]) / 50:.3f}", flush=True)
    del batches, loader
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
