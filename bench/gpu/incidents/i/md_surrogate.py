"""Molecular dynamics with a neural force surrogate; an observer thread accumulates the
radial distribution function from sampled frames while the integrator goes on."""
import json
import queue
import sys
import threading
import time

import numpy as np
import torch
from torch import nn

TRUTH = {
    "cause": ["gil-wait"],
    "culprit": ["self", "thread"],
    "line": "# FAULT",
    "compound": False,
}
# The observer thread computes pair distances in pure Python and keeps the interpreter lock, so the integrator
# thread cannot launch the surrogate's kernels.

START = time.monotonic()
BOX = 20.0
BINS = 128
SCALE = BINS / (0.87 * BOX)


def rdf_pairs(xyz):
    """Histogram of minimum image distances over all pairs."""
    hist = [0] * BINS
    pts = xyz.tolist()
    for i, (x, y, z) in enumerate(pts):
        for u, v, w in pts[:i]:
            dx, dy, dz = abs(x - u), abs(y - v), abs(z - w)
            if dx > 0.5 * BOX:
                dx = BOX - dx
            if dy > 0.5 * BOX:
                dy = BOX - dy
            if dz > 0.5 * BOX:
                dz = BOX - dz
            hist[int((dx * dx + dy * dy + dz * dz) ** 0.5 * SCALE)] += 1
    return np.array(hist)


def rdf_array(xyz):
    """The same for whole arrays."""
    hist = np.zeros(BINS, dtype=np.int64)
    d2 = np.zeros((len(xyz), len(xyz)), dtype=np.float32)
    for axis in range(3):
        col = xyz[:, axis]
        delta = np.abs(col[:, None] - col[None, :])
        np.minimum(delta, BOX - delta, out=delta)
        d2 += delta * delta
    idx = (np.sqrt(d2) * SCALE).astype(np.int64)
    hist += np.bincount(idx.ravel(), minlength=BINS)[:BINS]
    hist[0] -= len(xyz)
    return hist // 2


class Observer(threading.Thread):
    """Consumes frames and keeps the running g(r)."""

    def __init__(self, rdf):
        super().__init__(name="observer", daemon=True)
        self.frames = queue.Queue()
        self.rdf = rdf
        self.total = np.zeros(BINS, dtype=np.int64)
        self.seen = 0

    def run(self):
        while (frame := self.frames.get()) is not None:
            self.total += self.rdf(frame)
            self.seen += 1


def build_surrogate(width, depth):
    layers = [nn.Linear(6, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 3), nn.Tanh())


class Integrator:
    def __init__(self, net, n_atoms, dt=0.002):
        self.net, self.dt = net, dt
        self.pos = torch.rand(n_atoms, 3, device="cuda") * BOX
        self.vel = torch.randn(n_atoms, 3, device="cuda") * 0.1

    @torch.inference_mode()
    def step(self, sample):
        """One leapfrog step; gives back the positions of the sampled atoms."""
        net, pos, vel = self.net, self.pos, self.vel
        acc = net(torch.cat((pos, vel), dim=1).bfloat16()).float()  # FAULT
        vel.add_(acc, alpha=self.dt).mul_(0.999)
        pos.add_(vel, alpha=self.dt).remainder_(BOX)
        return pos[:sample].cpu().numpy()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    with torch.device("cuda"):
        net = build_surrogate(4096, 16).to(torch.bfloat16).eval()
    md = Integrator(net, 16384 + 1024 * (seed % 4))

    for _ in range(4):
        frame = md.step(128)
    t = time.perf_counter()
    for _ in range(6):
        frame = md.step(128)
    step_s = (time.perf_counter() - t) / 6

    # choose the number of sampled atoms by the cost of a pair
    rdf_pairs(frame)
    t = time.perf_counter()
    for _ in range(3):
        rdf_pairs(frame)
    pair_s = (time.perf_counter() - t) / 3 / (128 * 127 / 2)
    every, share = (1, 0.95) if strength == "strong" else (6, 0.80)
    share *= 1 + 0.04 * (seed % 3)
    sample = max(32, int((2 * share * step_s / pair_s) ** 0.5))

    observer = Observer(rdf_pairs if mode == "fault" else rdf_array)
    observer.start()
    steps = 0
    while time.monotonic() < deadline:
        frame = md.step(sample)
        steps += 1
        if steps % every == 0:
            observer.frames.put(frame)
    observer.frames.put(None)
    observer.join(timeout=3)
    print(f"steps={steps} frames={observer.seen} sample={sample} peak_bin={int(observer.total.argmax())} "
          f"step_ms={step_s * 1e3:.1f}")
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
