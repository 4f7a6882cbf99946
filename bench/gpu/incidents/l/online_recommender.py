"""Online training of a ranking tower; a second thread signs and exports the popularity table.

usage: online_recommender.py MODE SECONDS SEED [STRENGTH]
"""
import hashlib
import json
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": ["lock-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}

BLOCK = 128 * 1024


class Popularity:
    def __init__(self, items):
        self.lock = threading.Lock()
        self.counts = np.zeros(items, dtype=np.float32)


class Exporter(threading.Thread):
    """Every `pause` seconds sign the table once for each of `targets` downstream targets."""

    def __init__(self, table, consistent):
        super().__init__(name="exporter", daemon=True)
        self.table = table
        self.consistent = consistent
        self.pause = 0.02
        self.targets = 1
        self.durations = []
        self.error = None
        self.stop = threading.Event()

    def sign(self, counts):
        t = time.perf_counter()
        data = memoryview(counts).cast("B")
        for k in range(self.targets):
            at = (k * BLOCK) % len(data)
            digest = hashlib.sha256(b"target-%d" % k)
            digest.update(data[at:at + BLOCK])
        self.durations.append(time.perf_counter() - t)

    def run(self):
        try:
            while not self.stop.wait(self.pause):
                if self.consistent:
                    # nobody may change the table while it is being signed
                    with self.table.lock:
                        self.sign(self.table.counts)
                else:
                    with self.table.lock:
                        copy = self.table.counts.copy()
                    self.sign(copy)
        except Exception as err:
            self.error = err


def tower(width, depth):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 8))


def train(mode, seconds, seed, share):
    torch.manual_seed(seed)
    items, width, batch = 1 << 18, 4096, 16384 + 512 * (seed % 4)
    with torch.device("cuda"):
        embed = nn.Embedding(50_000, width).to(torch.bfloat16).requires_grad_(False)
        model = tower(width, 10).to(torch.bfloat16)
        users = [torch.randint(50_000, (batch,)) for _ in range(8)]
        clicks = [torch.randint(8, (batch,)) for _ in range(8)]
    optim = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    rng = np.random.default_rng(seed)
    shown = [np.unique(rng.integers(items, size=1024)) for _ in range(8)]

    table = Popularity(items)

    def update(i):
        loss = nn.functional.cross_entropy(model(embed(users[i % 8])), clicks[i % 8])
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        return loss.item()

    def step(i):
        loss = update(i)
        with table.lock:  # FAULT
            table.counts[shown[i % 8]] += 1.0
        return loss

    times = []
    for i in range(28):
        t = time.perf_counter()
        step(i)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t)
    step_s = statistics.median(times[18:])

    exporter = Exporter(table, consistent=mode == "fault")
    exporter.pause = 0.5 * step_s
    sign_s = 0.5 * step_s + step_s * share / (1 - share)
    exporter.targets = 64
    for _ in range(5):
        exporter.sign(table.counts)
    exporter.targets = max(1, round(64 * sign_s / statistics.median(exporter.durations)))

    exporter.start()
    try:
        # settle the number of targets with both threads at work
        for _ in range(2):
            for i in range(3):
                step(i)
            exporter.durations.clear()
            for i in range(8):
                step(i)
            if exporter.durations:
                exporter.targets = max(1, round(exporter.targets * sign_s
                                                / statistics.median(exporter.durations)))
        for i in range(3):
            step(i)
        steps, loss = 0, 0.0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            loss = step(steps)
            steps += 1
        elapsed = time.perf_counter() - start
    finally:
        exporter.stop.set()
        exporter.join()
    if exporter.error:
        raise exporter.error
    return {"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
            "gpu_step_ms": 1e3 * step_s, "targets": exporter.targets, "loss": loss}


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    with ThreadPoolExecutor(1, thread_name_prefix="trainer") as pool:
        result = pool.submit(train, mode, seconds, seed, share).result()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
