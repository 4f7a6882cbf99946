"""Self-supervised speech encoder: reconstruct frames of reverberated audio.

usage: train_speech_encoder.py MODE SECONDS SEED [STRENGTH]
"""
import json
import multiprocessing
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TRUTH = {"cause": ["input-starved"], "culprit": "child", "line": "# FAULT", "compound": False}

FRAME = 40
FRAMES = 400


class ReverbSpeech(IterableDataset):
    """Endless batches of one-second clips with a random room response."""

    def __init__(self, batch, seed):
        self.batch = batch
        self.seed = seed
        self.samples = FRAME * FRAMES
        self.taps = multiprocessing.Value("i", 32, lock=False)

    def clips(self, rng):
        return rng.standard_normal((64, self.samples), dtype=np.float32)

    def make_batch(self, rng, clips):
        taps = self.taps.value
        out = np.empty((self.batch, self.samples), dtype=np.float32)
        for row in out:
            clip = clips[rng.integers(len(clips))]
            row[:] = clip
            for k in range(taps):
                delay = 1 + (k * 37) % 397
                row[delay:] += (0.5 / (k + 1)) * clip[:-delay]
        return torch.from_numpy(out)

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(self.seed * 100 + (info.id if info else 0))
        clips = self.clips(rng)
        while True:
            yield self.make_batch(rng, clips)


class Encoder(nn.Module):
    def __init__(self, width=1536, layers=10):
        super().__init__()
        self.inp = nn.Linear(FRAME, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, width // 128, 4 * width, dropout=0.0,
                                       activation="gelu", batch_first=True, norm_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, FRAME)

    def forward(self, frames):
        x = self.inp(frames)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.manual_seed(seed)

    data = ReverbSpeech(batch=23 + seed % 4, seed=seed)
    with torch.device("cuda"):
        model = Encoder().to(torch.bfloat16)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train_step(wave):
        frames = wave.to("cuda", non_blocking=True).to(torch.bfloat16).view(-1, FRAMES, FRAME)
        loss = nn.functional.mse_loss(model(frames), frames)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        return loss.item()

    # how long does a step take when the batch is already there?
    rng = np.random.default_rng(seed)
    clips = data.clips(rng)
    example = data.make_batch(rng, clips).pin_memory()
    times = []
    for _ in range(28):
        t = time.perf_counter()
        train_step(example)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t)
    step_s = statistics.median(times[18:])
    batch_s = step_s / (1 - share)

    # length of the room response: a batch costs one worker about batch_s
    times = []
    for _ in range(7):
        t = time.perf_counter()
        data.make_batch(rng, clips)
        times.append(time.perf_counter() - t)
    taps = max(1, round(data.taps.value * batch_s / statistics.median(times)))

    workers = 1 if mode == "fault" else 6
    loader = DataLoader(data, batch_size=None, num_workers=workers, pin_memory=True,
                        prefetch_factor=2)

    if mode == "fault":
        data.taps.value = 2 * taps
    else:
        data.taps.value = taps
    batches = iter(loader)
    if mode == "fault":
        # measure the worker itself, with the training running beside it
        for _ in range(4):
            train_step(next(batches))
        t = time.perf_counter()
        for _ in range(8):
            train_step(next(batches))
        period = (time.perf_counter() - t) / 8
        taps = max(1, round(2 * taps * batch_s / period))
        data.taps.value = taps
    for _ in range(6):
        train_step(next(batches))

    steps, loss = 0, 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        wave = next(batches)  # FAULT
        loss = train_step(wave)
        steps += 1
    elapsed = time.perf_counter() - start
    del batches, loader
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * step_s, "taps": taps, "loss": loss}))


if __name__ == "__main__":
    main()
