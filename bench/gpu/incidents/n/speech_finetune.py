"""Fine-tunes a frame classifier for speech with noise augmentation.

The noise clip that is mixed into the batches is changed now and then; it is
resampled from the recorded clip by an external tool (a child process).

usage: speech_finetune.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["child-wait"], "culprit": "child", "line": "# FAULT", "compound": False}
import array
import collections
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MELS, FRAMES, WIDTH, PHONES, BLOCKS, CLIP = 80, 400, 1024, 64, 6, 16000

RESAMPLER = r'''
import array, sys
src, dst, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
clip = array.array("h")
with open(src, "rb") as f:
    clip.frombytes(f.read())
for _ in range(rounds):
    clip = array.array("h", [(3 * a + b) >> 2 for a, b in zip(clip, clip[1:] + clip[:1])])
with open(dst, "wb") as f:
    f.write(clip.tobytes())
'''


def resample_command(src, dst, rounds):
    return [sys.executable, "-I", "-S", "-c", RESAMPLER, src, dst, str(rounds)]


def resample(src, dst, rounds):
    subprocess.run(resample_command(src, dst, rounds), check=True)  # FAULT
    return dst


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(MELS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.out = nn.Linear(WIDTH, PHONES)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


class Trainer:
    def __init__(self, batch, seed, dev):
        torch.manual_seed(seed)
        self.dev = dev
        with torch.device(dev):
            self.net = Classifier()
            self.noise = torch.zeros(CLIP)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.mels = [torch.randn(batch, FRAMES, MELS).pin_memory() for _ in range(4)]
        self.phones = [torch.randint(0, PHONES, (batch, FRAMES)).pin_memory() for _ in range(4)]
        self.staging = [torch.empty(CLIP, dtype=torch.int16, pin_memory=True) for _ in range(2)]
        self.loads = 0

    def load_noise(self, path):
        stage = self.staging[self.loads % 2]
        stage.copy_(torch.from_numpy(np.fromfile(path, dtype=np.int16)))
        self.noise = stage.to(self.dev, non_blocking=True).float() / 32768
        self.loads += 1

    def step(self, i):
        x = self.mels[i % 4].to(self.dev, non_blocking=True)
        y = self.phones[i % 4].to(self.dev, non_blocking=True)
        x = x + 0.1 * self.noise[:FRAMES].view(1, FRAMES, 1)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.net(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), y.flatten())
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


def tool_cost(src, dst):
    times = {}
    for rounds in (1, 21):
        best = 1e9
        for _ in range(3):
            t0 = time.perf_counter()
            resample(src, dst, rounds)
            best = min(best, time.perf_counter() - t0)
        times[rounds] = best
    per = max(1e-5, (times[21] - times[1]) / 20)
    return max(1e-3, times[1] - per), per


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    dev = torch.device("cuda")
    rng = random.Random(seed)

    probe = Trainer(16, seed, dev)
    t = timed(probe.step)
    batch = max(4, min(256, round(16 * (0.022 + 0.002 * (seed % 4)) / t)))
    del probe
    trainer = Trainer(batch, seed, dev)
    step_s = timed(trainer.step, n=10)

    folder = tempfile.mkdtemp(prefix="speech_")
    steps, value, jobs = 0, float("nan"), collections.deque()
    try:
        src = os.path.join(folder, "noise.raw")
        with open(src, "wb") as f:
            f.write(array.array("h", [rng.randint(-20000, 20000) for _ in range(CLIP)]).tobytes())
        start, per_round = tool_cost(src, os.path.join(folder, "probe.raw"))
        per_step = step_s * share / (1 - share)
        every = max(2, math.ceil(2.5 * start / per_step))
        rounds = max(1, round((every * per_step - start) / per_round))
        print(f"batch {batch}, {step_s * 1e3:.1f} ms per step, new noise every {every} steps", flush=True)

        def begin(n):
            dst = os.path.join(folder, f"noise{n % 4}.raw")
            return subprocess.Popen(resample_command(src, dst, rounds)), dst

        started = 0
        if mode != "fault":
            for _ in range(2):
                jobs.append(begin(started))
                started += 1
        t0 = time.monotonic()
        while time.monotonic() - t0 < seconds:
            loss = trainer.step(steps)
            steps += 1
            if steps % every == 0:
                if mode == "fault":
                    value = loss.item()
                    path = resample(src, os.path.join(folder, "noise.next.raw"), rounds)  # ALT
                    trainer.load_noise(path)
                else:
                    if jobs[0][0].poll() is not None:  # resampled beside the training
                        trainer.load_noise(jobs.popleft()[1])
                        jobs.append(begin(started))
                        started += 1
                    value = loss.item()
                if trainer.loads % 10 == 1:
                    print(f"step {steps} loss {value:.4f}", flush=True)
    finally:
        for proc, _ in jobs:
            proc.terminate()
            proc.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "loss": value, "noises": trainer.loads,
                      "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
