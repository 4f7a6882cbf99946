"""Trains a click ranker on replayed impressions and keeps per-item exposure counts,
which a background exporter packs into compressed snapshots for the serving fleet."""
import json
import sys
import threading
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "cause": ["lock-wait"],
    "culprit": ["self", "thread"],
    "line": "# FAULT",
    "compound": False,
}
# The exporter thread keeps the exposure lock while it compresses the snapshot, so the training thread waits for
# that lock after its step.

START = time.monotonic()
N_ITEMS = 1_000_000
CHUNK = 32 * 1024


class ExposureStats:
    """Exposure counts per item, shared by the trainer and the exporter."""

    def __init__(self, n_items, rng):
        self.counts = rng.integers(0, 5000, n_items, dtype=np.int32)
        self.guard = threading.Lock()
        self.changed = threading.Event()

    def record(self, items):
        with self.guard:  # FAULT
            self.counts[items] += 1


class SnapshotExporter(threading.Thread):
    """Packs the counts whenever the trainer says that they have moved on."""

    def __init__(self, stats, n_chunks, consistent):
        super().__init__(name="snapshot-exporter", daemon=True)
        self.stats = stats
        self.n_chunks = n_chunks
        self.consistent = consistent
        self.stopping = threading.Event()
        self.exported = 0

    def pack(self, counts):
        raw = memoryview(counts).cast("B")
        places = [(i * CHUNK) % (len(raw) - CHUNK) for i in range(self.n_chunks)]
        return [zlib.compress(raw[at:at + CHUNK], 6) for at in places]

    def run(self):
        while not self.stopping.is_set():
            if not self.stats.changed.wait(0.2):
                continue
            self.stats.changed.clear()
            if self.consistent:
                # nobody may touch the counts until the snapshot is complete
                with self.stats.guard:
                    self.latest = self.pack(self.stats.counts)
            else:
                with self.stats.guard:
                    counts = self.stats.counts.copy()
                self.latest = self.pack(counts)
            self.exported += 1


class Ranker(nn.Module):
    def __init__(self, n_items, width=4096, depth=6):
        super().__init__()
        self.items = nn.Embedding(n_items, 64)
        layers = [nn.Linear(256 + 8 * 64, width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.tower = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, user, shown):
        x = torch.cat((user, self.items(shown).flatten(1)), dim=1)
        return self.tower(x).squeeze(1)


def make_pool(batch, n):
    pool = []
    for _ in range(n):
        user = torch.randn(batch, 256).pin_memory()
        shown = torch.randint(0, N_ITEMS, (batch, 8)).pin_memory()
        clicked = (torch.rand(batch) < 0.1).float().pin_memory()
        pool.append((user, shown, clicked))
    return pool


def train_step(model, opt, batch):
    user, shown, clicked = (t.to("cuda", non_blocking=True) for t in batch)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.binary_cross_entropy_with_logits(model(user, shown).float(), clicked)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.item()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)

    with torch.device("cuda"):
        model = Ranker(N_ITEMS)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    pool = make_pool(8192 + 512 * (seed % 4), 8)
    for i in range(5):
        train_step(model, opt, pool[i])
    t = time.perf_counter()
    for i in range(6):
        train_step(model, opt, pool[i])
    step_s = (time.perf_counter() - t) / 6

    stats = ExposureStats(N_ITEMS, rng)
    # snapshot size: a share of the catalogue, in chunks, by how fast this host packs
    probe = SnapshotExporter(stats, 12, False)
    t = time.perf_counter()
    probe.pack(stats.counts)
    chunk_s = (time.perf_counter() - t) / 12
    every, spill = (1, 0.80) if strength == "strong" else (5, 5 * 0.11)
    spill *= 1 + 0.04 * (seed % 3)
    exporter = SnapshotExporter(stats, max(1, round(step_s * (1 + spill) / chunk_s)),
                                consistent=mode == "fault")
    exporter.start()

    step, running = 0, 0.7
    while time.monotonic() < deadline:
        batch = pool[step % len(pool)]
        running = 0.98 * running + 0.02 * train_step(model, opt, batch)
        stats.record(batch[1][:, 0].numpy())
        step += 1
        if step % every == 0:
            stats.changed.set()

    exporter.stopping.set()
    exporter.join(timeout=2)
    print(f"steps={step} loss={running:.4f} snapshots={exporter.exported} step_ms={step_s * 1e3:.1f}")
    print(json.dumps({"steps": step}), flush=True)


if __name__ == "__main__":
    main()
