"""Trains a waveform denoiser and keeps pairs of noisy and restored clips for a listening report."""
import collections
import itertools
import json
import sys
import time

import torch
from torch import nn

TRUTH = {"cause": ["memory-leak"], "culprit": "self", "line": "# FAULT"}

CLIPS, SAMPLES, CHANNELS = 88, 131072, 128


class Residual(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.spread = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=dilation, dilation=dilation)
        self.merge = nn.Conv1d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return x + self.merge(torch.relu(self.spread(x)))


class Denoiser(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv1d(1, CHANNELS, 16, stride=8, padding=4),
            *[Residual(2 ** n) for n in range(4)],
            nn.ConvTranspose1d(CHANNELS, 1, 16, stride=8, padding=4))


class ListeningReport:
    """Every `every` steps one pair goes into the report; `limit` pairs fit on a page."""

    def __init__(self, every, limit):
        self.every = every
        self.pairs = collections.deque(maxlen=limit)

    def update(self, step, noisy, restored):
        if step % self.every == 0:
            self.pairs.append(torch.stack((noisy, restored.detach())))  # FAULT

    def loudest(self):
        return max((pair[1].abs().amax() for pair in itertools.islice(self.pairs, 4)), default=torch.zeros(()))


class Synthesizer:
    def __init__(self, seed):
        self.random = torch.Generator("cuda").manual_seed(seed)
        self.time = torch.arange(SAMPLES, device="cuda") / 16000.0

    def batch(self):
        pitch = 80 + 400 * torch.rand(CLIPS, 1, 1, device="cuda", generator=self.random)
        clean = torch.sin(6.2832 * pitch * self.time)
        noise = torch.randn(clean.shape, device="cuda", generator=self.random)
        return clean, clean + 0.3 * noise


def train(model, optimizer, source, report, seconds, first_step=0):
    begin = time.perf_counter()
    for step in itertools.count(first_step):
        clean, noisy = source.batch()
        restored = model(noisy)
        loss = nn.functional.l1_loss(restored, clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        report.update(step, noisy, restored)
        value = loss.item()
        if step % 100 == 0:
            print(f"step {step} loss {value:.4f}", flush=True)
        if time.perf_counter() - begin >= seconds:
            return step + 1 - first_step, time.perf_counter() - begin


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    model, source = Denoiser().cuda(), Synthesizer(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    warm = ListeningReport(every=2, limit=6)
    first, _ = train(model, optimizer, source, warm, 2.5)
    count, elapsed = train(model, optimizer, source, warm, 1.5, first)
    del warm
    every = max(2, int((0.33 if weak else 0.2) * count / elapsed))
    report = ListeningReport(every, limit=900 if mode == "fault" else 6)
    steps, _ = train(model, optimizer, source, report, seconds, first + count)
    print(f"loudest restored sample {float(report.loudest()):.3f}")
    print(json.dumps({"steps": steps}))


main()
