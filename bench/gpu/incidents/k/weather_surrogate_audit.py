"""Trains a convolutional weather surrogate on gridded tiles. Every step goes to an audit log, and the
raw tile behind it is stored there too, deflated, by a recorder thread."""
import json
import logging
import os
import queue
import shutil
import statistics
import sys
import tempfile
import threading
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["lock-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}

CHANNELS, GRID, FIELDS = 256, 128, 10
log = logging.getLogger("surrogate.audit")


class AuditHandler(logging.Handler):
    """One file for the step lines and the tiles, so that an auditor sees them in order."""

    def __init__(self, path):
        super().__init__()
        self.stream = open(path, "wb")

    def emit(self, record):
        tile = getattr(record, "tile", b"")
        if tile and not record.deflated:
            tile = zlib.compress(tile, 6)  # ALT
        self.stream.write(record.getMessage().encode() + b"\n" + tile)

    def close(self):
        self.stream.close()
        super().close()


class TileRecorder(threading.Thread):
    def __init__(self, tile_bytes, deflate_first, seed):
        super().__init__(name="tiles", daemon=True)
        walk = np.random.default_rng(seed).integers(-40, 41, 8 << 20, dtype=np.int16)
        self.archive = memoryview(np.cumsum(walk, dtype=np.int16)).cast("B")
        self.tile_bytes, self.deflate_first = tile_bytes, deflate_first
        self.jobs = queue.Queue()

    def deflate_rate(self):
        spent = []
        for part in range(5):
            began = time.perf_counter()
            zlib.compress(self.archive[part << 18:(part + 1) << 18], 6)
            spent.append(time.perf_counter() - began)
        return (1 << 18) / statistics.median(spent)

    def run(self):
        while (step := self.jobs.get()) is not None:
            start = (step * 999_983) % (len(self.archive) - self.tile_bytes)
            tile = self.archive[start:start + self.tile_bytes]
            if self.deflate_first:
                tile = zlib.compress(tile, 6)
            log.debug("tile of step %d", step, extra={"tile": tile, "deflated": self.deflate_first})


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm = nn.GroupNorm(16, CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return x + self.second(F.gelu(self.norm(self.first(x))))


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.rows = 16 + 2 * (seed % 3)
        self.tiles = torch.randn(96, 2 * FIELDS, GRID, GRID).to(torch.bfloat16)
        self.staging = torch.empty(self.rows, 2 * FIELDS, GRID, GRID, dtype=torch.bfloat16).pin_memory()
        with torch.device("cuda"):
            self.net = nn.Sequential(nn.Conv2d(FIELDS, CHANNELS, 3, padding=1), *[Block() for _ in range(7)],
                                     nn.Conv2d(CHANNELS, FIELDS, 3, padding=1))
        self.net.to(torch.bfloat16, memory_format=torch.channels_last)
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)

    def draw(self):
        rows = torch.randint(len(self.tiles), (self.rows,))
        torch.index_select(self.tiles, 0, rows, out=self.staging)

    def fit(self):
        batch = self.staging.to("cuda", non_blocking=True)
        now = batch[:, :FIELDS].contiguous(memory_format=torch.channels_last)
        loss = F.mse_loss(self.net(now).float(), batch[:, FIELDS:].float())
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        return loss.item()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10

    trainer = Trainer(seed)
    draws, fits = [], []
    for _ in range(12):
        began = time.perf_counter()
        trainer.draw()
        drawn = time.perf_counter()
        trainer.fit()
        draws.append(drawn - began)
        fits.append(time.perf_counter() - drawn)
    draw_time, fit_time = statistics.median(draws[4:]), statistics.median(fits[4:])

    recorder = TileRecorder(0, deflate_first=mode == "healthy", seed=seed)
    budget = (draw_time + fit_time) * share / (1 - share) + draw_time
    recorder.tile_bytes = min(8 << 20, int(recorder.deflate_rate() * budget))
    print(f"draw {draw_time * 1e3:.1f} ms, fit {fit_time * 1e3:.1f} ms, tile {recorder.tile_bytes} B", file=sys.stderr)

    folder = tempfile.mkdtemp(prefix="surrogate_")
    handler = AuditHandler(os.path.join(folder, "audit.log"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    recorder.start()
    step, loss, until = 0, trainer.fit(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        recorder.jobs.put(step)
        trainer.draw()
        log.info("step %d loss %.5f", step, loss)  # FAULT
        loss = trainer.fit()
        step += 1
    recorder.jobs.put(None)
    recorder.join(timeout=10)
    handler.close()
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": step}))


if __name__ == "__main__":
    main()
