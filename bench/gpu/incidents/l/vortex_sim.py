"""Pseudo-spectral 2-D turbulence; each output step leaves a compressed probe table.

usage: vortex_sim.py MODE SECONDS SEED [STRENGTH]
"""
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch

TRUTH = {"cause": ["child-wait"], "culprit": "child", "line": "# FAULT", "compound": False}

PACK_PY = "import sys, zlib; sys.stdout.buffer.write(zlib.compress(open(sys.argv[1], 'rb').read(), 6))"


class Flow:
    def __init__(self, n, seed):
        torch.manual_seed(seed)
        self.n = n
        kx = torch.fft.fftfreq(n, 1.0 / n, device="cuda").view(n, 1)
        ky = torch.fft.rfftfreq(n, 1.0 / n, device="cuda").view(1, n // 2 + 1)
        self.ikx, self.iky = 1j * kx, 1j * ky
        k2 = kx * kx + ky * ky
        self.inv = 1.0 / torch.clamp(k2, min=1.0)
        self.dt = 1e-5
        self.damp = torch.exp(-1e-4 * self.dt * k2)
        self.w = torch.fft.rfft2(torch.randn(n, n, device="cuda")) * (k2 < (n / 8) ** 2)

    def slope(self, w):
        psi = w * self.inv
        shape = (self.n, self.n)
        u = torch.fft.irfft2(psi * self.iky, s=shape)
        v = torch.fft.irfft2(psi * self.ikx, s=shape)
        wx = torch.fft.irfft2(w * self.ikx, s=shape)
        wy = torch.fft.irfft2(w * self.iky, s=shape)
        return torch.fft.rfft2(v * wy - u * wx)

    def substep(self):
        half = self.w + (0.5 * self.dt) * self.slope(self.w)
        self.w = (self.w + self.dt * self.slope(half)) * self.damp


class Probes:
    """Text table of the probe values, packed by an external program."""

    def __init__(self, folder, seed):
        rng = random.Random(seed)
        self.path = os.path.join(folder, "probes.csv")
        self.packed = os.path.join(folder, "probes.csv.gz")
        lines = ["%d,%.6f,%.6f\n" % (k, rng.gauss(0, 1), rng.gauss(0, 1)) for k in range(20000)]
        self.rows = "".join(lines).encode()
        self.size = 0
        self.table = b""
        gzip = shutil.which("gzip")
        if gzip:
            self.command = [gzip, "-6", "-c", self.path]
        else:
            self.command = [sys.executable, "-S", "-c", PACK_PY, self.path]

    def resize(self, size):
        self.size = size
        self.table = (self.rows * (size // len(self.rows) + 1))[:size]

    def export(self, probe):
        with open(self.path, "wb") as fh:
            fh.write(b"# %.6e\n" % probe)
            fh.write(self.table)
        with open(self.packed, "wb") as out:
            subprocess.run(self.command, stdout=out, check=True)  # FAULT


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.set_grad_enabled(False)

    flow = Flow((8192, 8064, 7680)[seed % 3], seed)
    host = [torch.zeros(1).pin_memory() for _ in range(2)]
    done = [torch.cuda.Event() for _ in range(2)]
    substeps = 1

    def advance(i):
        for _ in range(substeps):
            flow.substep()
        host[i % 2].copy_(flow.w[1:65, 1:65].abs().mean().view(1), non_blocking=True)
        done[i % 2].record()

    def result(i):
        done[i % 2].synchronize()
        value = float(host[i % 2])
        return value if math.isfinite(value) else 0.0

    def timed(count, skip):
        times = []
        for i in range(count):
            t = time.perf_counter()
            advance(i)
            result(i)
            times.append(time.perf_counter() - t)
        return statistics.median(times[skip:])

    substeps = max(1, round(0.045 / timed(10, 4)))
    step_s = timed(22, 12)
    budget_s = step_s * share / (1 - share)

    folder = tempfile.mkdtemp(prefix="vortex-")
    try:
        probes = Probes(folder, seed)

        def cost(size):
            """Seconds of one export, between two steps as in the run."""
            probes.resize(size)
            times = []
            for i in range(7):
                advance(i)
                value = result(i)
                t = time.perf_counter()
                probes.export(value)
                times.append(time.perf_counter() - t)
            return statistics.median(times[1:])

        low, high = 100_000, 500_000
        slope = (cost(high) - cost(low)) / (high - low)
        fixed = max(0.0, cost(low) - slope * low)
        # an export costs something even when it is empty: not more often than that is worth
        every = max(1, math.ceil(1.5 * fixed / budget_s))
        size = max(1000, round((every * budget_s - fixed) / slope))
        size = max(1000, round(size + (every * budget_s - cost(size)) / slope))
        probes.resize(size)

        overlap = mode == "healthy"
        steps = 0
        advance(0)
        value = result(0)
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            advance(steps)
            if not overlap:
                value = result(steps)
            if steps % every == 0:
                probes.export(value)  # ALT
            if overlap:
                value = result(steps)
            steps += 1
        elapsed = time.perf_counter() - start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * step_s, "substeps": substeps,
                      "table_bytes": size, "every": every}))


if __name__ == "__main__":
    main()
