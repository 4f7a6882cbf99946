"""Collects rollouts of a large policy in a simulator that runs on the GPU.

The rollout thread is pinned to one core for steady latency.  Finished rollouts
are packed by replay packers, small helper processes.

usage: policy_rollout.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["cpu-preempted"], "culprit": "child", "line": "# FAULT", "compound": False}
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn as nn

OBS, WIDTH, ACTIONS, LAYERS, PACKERS = 64, 4096, 16, 8, 15

PACKER = r'''
import mmap, os, sys, time, zlib
path, me, cores = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if cores:
    os.sched_setaffinity(0, {int(c) for c in cores.split(",")})
f = open(path, "r+b")
ctl = mmap.mmap(f.fileno(), 4096)
parent = os.getppid()
episode = os.urandom(4096) * 2
ctl[16 + me] = 1
size = 0
while os.getppid() == parent:
    if me >= ctl[0]:
        time.sleep(0.01)
        continue
    load = ctl[1] / 100
    end = time.perf_counter() + 0.010 * load
    while time.perf_counter() < end:
        size += len(zlib.compress(episode, 6))
    if load < 1:
        time.sleep(0.010 * (1 - load))
'''


class Rollout:
    def __init__(self, envs, seed, dev):
        torch.manual_seed(seed)
        with torch.device(dev):
            layers, width = [], OBS
            for _ in range(LAYERS):
                layers += [nn.Linear(width, WIDTH), nn.SiLU(inplace=True)]
                width = WIDTH
            self.policy = nn.Sequential(*layers, nn.Linear(width, ACTIONS)).to(torch.bfloat16)
            self.state = torch.randn(envs, OBS)
            self.push = torch.randn(ACTIONS, OBS) * 0.1
            self.drift = torch.randn(OBS, OBS) / OBS ** 0.5
        self.best = float("-inf")

    def step(self):
        logits = self.policy(self.state.to(torch.bfloat16))  # FAULT
        action = (logits.float() - torch.rand_like(logits, dtype=torch.float32).log_().neg_().log_()).argmax(-1)  # FAULT
        moved = torch.tanh(self.state @ self.drift + self.push[action])  # FAULT
        reward = -(moved[:, 0] ** 2) - 0.01 * (moved - self.state).square().mean(-1)  # FAULT
        self.state = moved
        mean = reward.mean().item()  # FAULT
        self.best = max(self.best, mean)
        return mean


def measure(rollout, seconds, least=8):
    n, t0 = 0, time.perf_counter()
    while n < least or time.perf_counter() - t0 < seconds:
        rollout.step()
        n += 1
    return (time.perf_counter() - t0) / n


def find_level(rollout, ctl, alone, share):
    """How much packing goes on beside the rollout."""
    levels = [(1, 15), (1, 30), (1, 50), (1, 100), (2, 100), (3, 100), (4, 100), (6, 100), (8, 100), (11, 100),
              (15, 100)]
    best = None
    for count, load in levels:
        ctl[1], ctl[0] = load, count
        time.sleep(0.05)
        lost = 1 - alone / measure(rollout, 0.4)
        if best is None or abs(lost - share) < abs(best[0] - share):
            best = (lost, count, load)
        if lost > share + 0.04:
            break
    ctl[1], ctl[0] = best[2], best[1]
    return best


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("high")
    dev = torch.device("cuda")

    probe = Rollout(4096, seed, dev)
    measure(probe, 0.2)
    t = measure(probe, 0.2)
    envs = max(1024, min(65536, int(4096 * (0.011 + 0.001 * (seed % 3)) / t) // 256 * 256))
    del probe
    rollout = Rollout(envs, seed, dev)
    measure(rollout, 0.3)

    cores = sorted(os.sched_getaffinity(0))
    mine = cores[1 + seed % (len(cores) - 1)] if len(cores) > 1 else cores[0]
    os.sched_setaffinity(0, {mine})
    others = "" if mode == "fault" else ",".join(str(c) for c in cores if c != mine)

    control = tempfile.NamedTemporaryFile(prefix="rollout_")
    control.write(bytes(4096))
    control.flush()
    ctl = mmap.mmap(control.fileno(), 4096)
    packers, steps, lost = [], 0, 0.0
    try:
        for i in range(PACKERS if mode == "fault" else 3):
            packers.append(subprocess.Popen([sys.executable, "-S", "-c", PACKER, control.name, str(i), others]))
        limit = time.monotonic() + 5
        while time.monotonic() < limit and not all(ctl[16 + i] for i in range(len(packers))):
            time.sleep(0.02)
        alone = measure(rollout, 0.4)
        if mode == "fault":
            lost, ctl_count, ctl_load = find_level(rollout, ctl, alone, share)
        else:
            ctl_count, ctl_load = 3, 60
            ctl[1], ctl[0] = ctl_load, ctl_count
        print(f"{envs} envs, {alone * 1e3:.1f} ms per step, {ctl_count} packers at {ctl_load} %", flush=True)
        t0 = time.monotonic()
        mean = 0.0
        while time.monotonic() - t0 < seconds:
            mean = rollout.step()  # ALT
            steps += 1
            if steps % 100 == 0:
                print(f"step {steps} reward {mean:.4f} best {rollout.best:.4f}", flush=True)
    finally:
        for p in packers:
            p.terminate()
        for p in packers:
            p.wait()
        control.close()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": round(alone * 1e3, 2), "lost": round(lost, 3)}),
          flush=True)


if __name__ == "__main__":
    main()
