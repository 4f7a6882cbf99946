"""Least-squares migration of seismic shots: uploads run on a copy stream beside the solver."""
import json
import sys
import time

import numpy as np
import torch

TRUTH = {"cause": ["driver-call"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

TRACES, SAMPLES, SHOTS = 8192, 2048, 6


class ShotFeed:
    """Hands out shots on the device; recorder buffers are either locked once or whenever one is sent."""

    def __init__(self, seed, lock_each):
        rng = np.random.default_rng(seed)
        self.shots = [rng.standard_normal((TRACES, SAMPLES), dtype=np.float32) for _ in range(SHOTS)]
        self.copies, self.turn, self.ahead = torch.cuda.Stream(), 0, None
        self.runtime, self.lock_each = torch.cuda.cudart(), lock_each
        if not lock_each:
            for shot in self.shots:
                self.lock(shot)
            self.ahead = self.send(self.pick())

    def lock(self, shot):
        code = self.runtime.cudaHostRegister(shot.ctypes.data, shot.nbytes, 0)  # FAULT
        if int(code) != 0:
            raise RuntimeError(f"cannot lock a shot in memory: {code}")

    def unlock(self, shot):
        self.runtime.cudaHostUnregister(shot.ctypes.data)  # ALT

    def pick(self):
        self.turn += 1
        return self.shots[self.turn % SHOTS]

    def send(self, shot):
        with torch.cuda.stream(self.copies):
            return torch.from_numpy(shot).to("cuda", non_blocking=True)

    def send_locked(self, shot):
        self.lock(shot)
        sent = self.send(shot)
        self.copies.synchronize()
        self.unlock(shot)
        return sent

    def next(self):
        shot = self.send_locked(self.pick()) if self.lock_each else self.ahead
        solver = torch.cuda.current_stream()
        solver.wait_stream(self.copies)
        shot.record_stream(solver)
        if not self.lock_each:
            self.ahead = self.send(self.pick())
        return shot

    def close(self):
        torch.cuda.synchronize()
        if not self.lock_each:
            for shot in self.shots:
                self.unlock(shot)


class Migration:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.operator = torch.randn(TRACES, TRACES, device="cuda", dtype=torch.bfloat16) / TRACES ** 0.5
        self.stack = torch.zeros(TRACES, SAMPLES, device="cuda")
        self.folded = 0

    def add(self, shot, iterations):
        data = shot.bfloat16()
        image = torch.zeros_like(data)
        for _ in range(iterations):
            residual = torch.addmm(data, self.operator, image, beta=-1.0)
            image = torch.addmm(image, self.operator.T, residual, alpha=-0.2)
        self.stack += image
        self.folded += 1
        return residual.float().square().mean().item()


def seconds_each(count, action):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 1.3
    torch.set_grad_enabled(False)
    feed, migration, iterations = ShotFeed(seed, lock_each=mode == "fault"), Migration(seed), 40
    shot = feed.next()
    migration.add(shot, 30)
    if mode == "fault":
        iteration_s = seconds_each(3, lambda: migration.add(shot, 40)) / 40
        seconds_each(SHOTS, feed.next)
        feed_s = seconds_each(3 * SHOTS, feed.next)
        iterations = max(1, round(feed_s / (share * iteration_s)))
    del shot

    shots, misfit, end = 0, 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        misfit = migration.add(feed.next(), iterations)
        shots += 1
        if shots % 50 == 0:
            preview = migration.stack[::16, ::16].abs().mean().item() / migration.folded
            print(f"{shots} shots, misfit {misfit:.4f}, mean amplitude {preview:.4f}", flush=True)
    feed.close()
    print(f"{iterations} iterations per shot, last misfit {misfit:.4f}")
    print(json.dumps({"steps": shots}))


main()
