"""Walk-forward backtest of a mixer model on order-book windows.

A side thread keeps the instrument catalogue (ticks, lots, venues) up to date.
usage: orderbook_forecast.py MODE SECONDS SEED [STRENGTH]
"""
import json
import os
import random
import sys
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}

DEV = "cuda"
TIME, WIDTH = 256, 1024


class Mixer(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.time = nn.ModuleList(nn.Linear(TIME, TIME) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 4 * WIDTH) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(4 * WIDTH, WIDTH) for _ in range(depth))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for time_mix, up, down in zip(self.time, self.up, self.down):
            h = F.layer_norm(x, (WIDTH,))  # ALT
            x = x + time_mix(h.transpose(1, 2)).transpose(1, 2)  # ALT
            x = x + down(F.gelu(up(F.layer_norm(x, (WIDTH,)))))  # ALT
        return self.head(x[:, -1]).squeeze(1)  # ALT


def write_catalogue(path, rows, rng):
    items = [{"id": i, "symbol": f"S{i:06d}", "tick": rng.choice([0.01, 0.05, 0.5]),
              "lot": rng.choice([1, 10, 100]), "venue": rng.choice(["XAMS", "XPAR", "XETR"]),
              "limits": [rng.random() * 10, rng.random() * 100], "halted": rng.random() < 0.01}
             for i in range(rows)]
    tmp = path + ".new"
    with open(tmp, "w") as f:
        json.dump({"asof": "2024-05-02", "instruments": items}, f)
    os.replace(tmp, path)


class Catalogue(threading.Thread):
    """Polls the catalogue file and keeps it as a dict by instrument id."""

    def __init__(self, path, check_stamp):
        super().__init__(daemon=True)
        self.path, self.check_stamp = path, check_stamp
        self.pause, self.stamp, self.by_id = 3600.0, None, {}
        self.wake, self.closing = threading.Event(), False

    def load(self):
        with open(self.path, "rb") as f:
            text = f.read()
        self.by_id = {item["id"]: item for item in json.loads(text)["instruments"]}

    def run(self):
        while not self.closing:
            self.wake.wait(self.pause)
            self.wake.clear()
            if self.closing:
                break
            stamp = os.stat(self.path).st_mtime_ns
            if self.check_stamp and stamp == self.stamp:
                continue
            self.load()
            self.stamp = stamp


class Backtest:
    def __init__(self, model, series, batch, catalogue):
        self.model, self.series, self.batch, self.cat = model, series, batch, catalogue
        self.steps, self.pnl = 0, 0.0

    def step(self):
        first = (self.steps * 37) % (self.series.size(0) - self.batch - TIME - 1)
        windows = self.series[first:first + self.batch + TIME - 1].unfold(0, TIME, 1)  # ALT
        signal = self.model(windows.transpose(1, 2).contiguous())  # ALT
        move = self.series[first + TIME:first + TIME + self.batch, 0]  # ALT
        gain = (signal.sign() * move).float().sum()  # ALT
        tick = self.cat.by_id[self.steps % len(self.cat.by_id)]["tick"]
        self.pnl += gain.item() * tick  # FAULT
        self.steps += 1

    def run(self, seconds):
        """Run for a while; mean seconds per step."""
        first, t0 = self.steps, time.perf_counter()
        while time.perf_counter() - t0 < seconds:
            self.step()
        return (time.perf_counter() - t0) / (self.steps - first)


@torch.no_grad()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strong = (sys.argv[4:] or ["strong"])[0] == "strong"
    share = 0.45 if strong else 0.115
    rng = random.Random(seed)
    torch.manual_seed(seed)
    batch = rng.choice([112, 128, 144])
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "instruments.json")
    write_catalogue(path, 3000, rng)
    cat = Catalogue(path, check_stamp=(mode != "fault"))
    cat.load()

    series = torch.randn(8192, WIDTH, device=DEV, dtype=torch.bfloat16)
    with torch.device(DEV):
        probe = Mixer(3).to(torch.bfloat16)
    test = Backtest(probe, series, batch, cat)
    test.run(0.4)
    depth = max(2, min(60, round(0.025 * 3 / test.run(0.3))))
    with torch.device(DEV):
        model = Mixer(depth).to(torch.bfloat16)
    del probe, test
    bt = Backtest(model, series, batch, cat)
    bt.run(0.8)
    gpu_step = bt.run(0.9)

    # a catalogue as long as the venue's: sized by the time one load takes
    hold = gpu_step * (3.0 if strong else 1.5)
    t0 = time.perf_counter()
    for _ in range(3):
        cat.load()
    rows = max(500, int(3000 * hold * 3 / (time.perf_counter() - t0)))
    write_catalogue(path, rows, rng)
    cat.load()
    t0 = time.perf_counter()
    for _ in range(2):
        cat.load()
    hold = (time.perf_counter() - t0) / 2
    cat.stamp = os.stat(path).st_mtime_ns

    cycle = max((hold - gpu_step / 2) / share, hold + 0.004)
    cat.pause = cycle - hold
    cat.start()
    cat.wake.set()

    def adapt(step, low, high):
        nonlocal cycle
        lost = max(0.02, 1 - gpu_step / step)
        cycle *= min(high, max(low, lost / share))
        cycle = max(cycle, hold + 0.003)
        cat.pause = cycle - hold

    if mode == "fault":
        for _ in range(3 if strong else 2):
            adapt(bt.run(0.8 if strong else 1.3), 0.6, 1.6)

    bt.steps, used, start = 0, 0.0, time.perf_counter()
    while used < seconds:
        step = bt.run(min(1.75, max(0.05, seconds - used)))
        used = time.perf_counter() - start
        if mode == "fault":
            adapt(step, 0.85, 1.18)
    wall = time.perf_counter() - start
    cat.closing = True
    cat.wake.set()
    cat.join(5)
    folder.cleanup()
    print(json.dumps({"steps": bt.steps, "mode": mode, "step_ms": 1e3 * wall / bt.steps,
                      "gpu_step_ms": 1e3 * gpu_step, "depth": depth, "rows": rows,
                      "load_ms": 1e3 * hold, "every_ms": 1e3 * cycle}))


if __name__ == "__main__":
    main()
