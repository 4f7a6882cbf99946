"""Backfills load forecasts for an electricity grid: slides a window over meter history, runs
a residual forecaster on the GPU and streams the forecasts to the archiver process."""
import json
import os
import queue
import subprocess
import sys
import threading
import time

import torch
from torch import nn

TRUTH = {
    "cause": ["output-blocked"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
# The forecasting thread writes each megabyte of forecasts into the archiver's pipe and is blocked there, since
# the archiver reads too slowly.

START = time.monotonic()
CONTEXT, HORIZON = 512, 32
PIPE = 65536

# stands in for the vendor's archiver, which takes what its uplink lets through
ARCHIVER = r'''
import os, sys, time
rate = float(sys.argv[1])
due = time.perf_counter()
while True:
    part = os.read(0, 65536)
    if not part:
        break
    now = time.perf_counter()
    due = max(due, now - 0.0005) + len(part) / rate
    time.sleep(max(0.0, due - now))
'''


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Forecaster(nn.Module):
    def __init__(self, width=4096, depth=8):
        super().__init__()
        self.embed = nn.Linear(CONTEXT, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, HORIZON)

    def forward(self, window):
        return self.head(self.blocks(self.embed(window)))


def push(fd, payload):
    """All of the payload down the archiver's pipe."""
    view = memoryview(payload)
    while view:
        view = view[os.write(fd, view):]  # FAULT


class Publisher(threading.Thread):
    """Passes forecasts on in the background."""

    def __init__(self, fd):
        super().__init__(name="publisher", daemon=True)
        self.fd, self.pending = fd, queue.Queue(maxsize=16)

    def run(self):
        while (payload := self.pending.get()) is not None:
            push(self.fd, payload)


class Backfill:
    def __init__(self, model, meters):
        self.model = model
        self.history = torch.randn(meters, 4 * CONTEXT, device="cuda", dtype=torch.bfloat16)
        self.staging = torch.empty(meters, HORIZON, pin_memory=True)
        self.copied = torch.cuda.Event()

    @torch.inference_mode()
    def forecast(self, hour):
        at = hour % (3 * CONTEXT)
        out = self.model(self.history[:, at:at + CONTEXT].contiguous())
        self.staging.copy_(out.float(), non_blocking=True)
        self.copied.record()
        self.copied.synchronize()
        return self.staging.numpy().tobytes()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    with torch.device("cuda"):
        model = Forecaster().to(torch.bfloat16).eval()
    backfill = Backfill(model, 8192 + 256 * (seed % 5))

    for hour in range(4):
        payload = backfill.forecast(hour)
    t = time.perf_counter()
    for hour in range(6):
        payload = backfill.forecast(hour)
    step_s = (time.perf_counter() - t) / 6

    # publish every hour, or only the full four hour blocks
    every, share = (1, 0.80) if strength == "strong" else (4, 4 * 0.11)
    share *= 1 + 0.04 * (seed % 3)
    rate = (len(payload) - PIPE) / (share * step_s)
    archiver = subprocess.Popen([sys.executable, "-c", ARCHIVER, f"{rate:.1f}"], stdin=subprocess.PIPE)
    fd = archiver.stdin.fileno()
    publisher = Publisher(fd) if mode == "healthy" else None
    if publisher is not None:
        publisher.start()

    hours = sent = 0
    try:
        while time.monotonic() < deadline:
            payload = backfill.forecast(hours)
            hours += 1
            if hours % every:
                continue
            if publisher is None:
                push(fd, payload)
            else:
                publisher.pending.put(payload)
            sent += len(payload)
        if publisher is not None:
            publisher.pending.put(None)
            publisher.join(timeout=2)
    finally:
        archiver.terminate()
        archiver.wait(timeout=5)
    print(f"hours={hours} sent_mb={sent / 1e6:.0f} step_ms={step_s * 1e3:.1f}")
    print(json.dumps({"steps": hours}), flush=True)


if __name__ == "__main__":
    main()
