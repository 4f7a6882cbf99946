"""Draws samples from a (randomly initialised) diffusion model with an adaptive noise schedule."""
import os

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"      # the home directory is read-only in production

import json
import random
import sys
import time

import torch
from torch.cuda.jiterator import _create_jit_fn as cuda_elementwise

TRUTH = {"cause": ["lazy-load"], "culprit": "self", "line": "# FAULT"}

STEP_FIXED = "template <typename T> T euler_step(T x, T eps) {{ return x - T({sigma:.9f}) * (eps - T(0.01) * x); }}"
STEP = "template <typename T> T euler_step(T x, T eps, T sigma) { return x - sigma * (eps - T(0.01) * x); }"


class Denoiser(torch.nn.Module):
    def __init__(self, width=2048, depth=6):
        super().__init__()
        self.up = torch.nn.ModuleList(torch.nn.Linear(width, 4 * width) for _ in range(depth))
        self.down = torch.nn.ModuleList(torch.nn.Linear(4 * width, width) for _ in range(depth))

    def forward(self, x):
        for up, down in zip(self.up, self.down):
            x = x + down(torch.nn.functional.silu(up(x)))
        return x


class Sampler:
    def __init__(self, seed, specialise):
        torch.manual_seed(seed)
        self.rng = random.Random(seed)
        self.net = Denoiser().to("cuda", torch.bfloat16)
        self.tokens = 16384 + 512 * (seed % 4)
        self.specialise = specialise
        self.update = cuda_elementwise(STEP, sigma=0.1)
        self.refresh_every = 20
        self.restart()

    def restart(self):
        self.x = torch.randn(self.tokens, 2048, device="cuda")
        self.sigma = 0.05
        self.n = 0

    def schedule(self):
        """New noise level from time to time, so that prompts do not all share one."""
        if self.n % self.refresh_every == 0:
            self.sigma = 0.02 + 0.06 * self.rng.random()
        self.n += 1

    @torch.no_grad()
    def step(self):
        self.schedule()
        eps = torch.tanh(self.net(self.x.bfloat16())).float()
        if self.specialise:
            x = cuda_elementwise(STEP_FIXED.format(sigma=self.sigma))(self.x, eps)  # FAULT
        else:
            x = self.update(self.x, eps, sigma=self.sigma)
        change = (x - self.x).abs().max().item()
        self.x = x
        return change

    def seconds_per_step(self, n=10):
        self.step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(n):
            self.step()
        return (time.perf_counter() - start) / n

    def seconds_to_specialise(self):
        probe = torch.randn(1024, device="cuda")
        for sigma in (1.5, 2.5):
            start = time.perf_counter()
            cuda_elementwise(STEP_FIXED.format(sigma=sigma))(probe, probe)
            torch.cuda.synchronize()
        return time.perf_counter() - start


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:] == ["weak"] else 1.2
    sampler = Sampler(seed, specialise=False)
    for _ in range(3):
        sampler.step()
    if mode == "fault":
        step_s = sampler.seconds_per_step()
        sampler.refresh_every = max(1, round(sampler.seconds_to_specialise() / (share * step_s)))
        sampler.specialise = True
    sampler.restart()

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        if sampler.step() < 1e-6 or sampler.n % 1000 == 0:
            sampler.restart()
        steps += 1
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
