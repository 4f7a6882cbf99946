"""Train a birdsong classifier on raw clips that DataLoader workers augment."""
import ctypes
import json
import signal
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, default_collate

TRUTH = {
    "cause": ["input-starved"],
    "culprit": "child:birdsong-aug",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
SAMPLES, FRAME, BATCH, SPECIES = 16000, 160, 96, 50
WORKERS = 4 if SEED % 2 == 0 else 2
WIDTH = 2048


class Clips(Dataset):
    def __init__(self, clips=300):
        rng = np.random.default_rng(SEED)
        self.bank = rng.integers(-9000, 9000, (clips, SAMPLES), dtype=np.int16)
        self.label = rng.integers(0, SPECIES, clips)
        self.passes = 0.0

    def __len__(self):
        return 1_000_000

    def equalise(self, wave, rng):
        """Random microphone: shape the spectrum and go back."""
        spectrum = np.fft.rfft(wave)  # ALT
        cut = rng.integers(100, 4000)
        spectrum[cut:cut + 400] *= 0.3
        return np.fft.irfft(spectrum, SAMPLES)  # ALT

    def __getitem__(self, i):
        rng = np.random.default_rng(SEED * 1_000_003 + i)
        clip = self.bank[i % len(self.bank)]
        rounds = int(self.passes) + (rng.random() < self.passes % 1)
        if rounds:
            wave = clip.astype(np.float64)
            for _ in range(rounds):
                wave = self.equalise(wave, rng)  # ALT
            clip = np.clip(wave, -32000, 32000).astype(np.int16)
        else:
            clip = clip.copy()
        return torch.from_numpy(clip), int(self.label[i % len(self.bank)])


def name_worker(worker_id):
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"birdsong-aug", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(FRAME, WIDTH)
        self.mix = nn.Sequential(*[Mixer() for _ in range(8)])
        self.out = nn.Linear(WIDTH, SPECIES)

    def forward(self, clips):
        x = clips.to(torch.bfloat16).div(9000).view(-1, SAMPLES // FRAME, FRAME)
        return self.out(self.mix(self.inp(x)).mean(1)).float()


class Trainer:
    def __init__(self):
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            self.net = Net().bfloat16()
            self.loss_sum = torch.zeros(())
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)

    def step(self, clips, labels):
        clips = clips.to("cuda", non_blocking=True)
        labels = labels.to("cuda", non_blocking=True)
        loss = F.cross_entropy(self.net(clips), labels)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def batch_time(data, passes, times=3):
    data.passes = passes
    took = []
    for k in range(times):
        start = time.perf_counter()
        default_collate([data[k * BATCH + i] for i in range(BATCH)])
        took.append(time.perf_counter() - start)
    return sorted(took)[times // 2]


def main():
    trainer = Trainer()
    data = Clips()
    clips, labels = default_collate([data[i] for i in range(BATCH)])
    clips, labels = clips.pin_memory(), labels.pin_memory()
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        for _ in range(5):
            trainer.step(clips, labels)
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20):
        trainer.step(clips, labels)
    torch.cuda.synchronize()
    gpu = (time.perf_counter() - start) / 20

    light = batch_time(data, 0.0)
    one = batch_time(data, 1.0) - light
    two = batch_time(data, 2.0) - light
    share = 0.42 if STRENGTH == "strong" else 0.12
    want = WORKERS * gpu / (1 - share) - light - 0.003
    passes = 1 + (want - one) / max(two - one, 1e-4) if want > one else max(0.1, want / one)
    data.passes = passes if MODE == "fault" else 0.0
    loader = DataLoader(data, batch_size=BATCH, num_workers=WORKERS, pin_memory=True,
                        prefetch_factor=2, worker_init_fn=name_worker)
    batches = iter(loader)
    trainer.step(*next(batches))

    steps = 0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        clips, labels = next(batches)  # FAULT
        trainer.step(clips, labels)
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps} loss {trainer.loss_sum.item() / 20:.3f}", file=sys.stderr)
            trainer.loss_sum.zero_()
    torch.cuda.synchronize()
    del batches
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
