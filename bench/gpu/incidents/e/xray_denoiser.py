"""Removes noise from X-ray images with a diffusion sampler while other processes compress the archive."""
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["cpu-preempted"], "culprit": "child:python", "line": "# FAULT", "alt_line": "# ALT"}

WIDTH, BLOCKS, SIZE, SAMPLING = 128, 24, 64, 40
WEIGHT = [1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110]      # the kernel's weight of a nice value

ARCHIVER = r'''
import os, random, sys, time, zlib
cores, nice, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if cores:
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
os.nice(nice)
image, end, size = random.Random(1).randbytes(1 << 16) * 4, time.time() + seconds, 0
while time.time() < end:
    size += len(zlib.compress(image, 6))
'''


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, WIDTH), nn.GroupNorm(8, WIDTH)
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, when):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(when)[:, :, None, None]  # ALT
        return x + self.conv2(F.silu(self.norm2(y)))  # ALT


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(2, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 1, 3, padding=1)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.register_buffer("waves", torch.exp(torch.linspace(0, 6, WIDTH // 2)))

    def forward(self, image, noisy, level):
        angle = level * self.waves
        when = torch.cat([angle.sin(), angle.cos()])[None]
        x = self.stem(torch.cat([image, noisy], 1))  # ALT
        for block in self.blocks:
            x = block(x, when)  # ALT
        return self.head(x)  # ALT


class Sampler:
    def __init__(self):
        self.model = Denoiser().to("cuda", torch.bfloat16, memory_format=torch.channels_last).eval()
        self.batch = 4

    @torch.inference_mode()
    def sample(self, image, steps):
        noisy = torch.randn_like(image)
        for step in range(steps):
            level = 1 - step / SAMPLING
            noisy = noisy - self.model(image, noisy, level) / SAMPLING  # FAULT
        return noisy

    def images(self):
        images = torch.rand(self.batch, 1, SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
        return images.contiguous(memory_format=torch.channels_last)

    def speeds(self):
        """Seconds that the host and the GPU need for a sampling step."""
        images, host_s, gpu_s = self.images(), [], 0.0
        self.sample(images, 4)
        torch.cuda.synchronize()
        for _ in range(8):
            begin = time.perf_counter()
            self.sample(images, 2)
            host_s.append((time.perf_counter() - begin) / 2)
            torch.cuda.synchronize()
        begin = time.perf_counter()
        self.sample(images, 16)
        torch.cuda.synchronize()
        gpu_s = (time.perf_counter() - begin) / 16
        return sorted(host_s)[4], gpu_s


def archivers(host_s, gpu_s, idle):
    """Nice values of the processes that leave the sampler that share of its core which makes the GPU idle so much."""
    rivals = 1 / min(0.9, host_s / gpu_s * (1 - idle)) - 1
    rest, nices = rivals % 1, [0] * int(rivals)
    if rest > 0.05 or not nices:
        nices.append(min(range(len(WEIGHT)), key=lambda nice: abs(WEIGHT[nice] / 1024 - rest)))
    return nices


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.07 if sys.argv[4:5] == ["weak"] else 0.48
    torch.manual_seed(seed)
    sampler = Sampler()
    sampler.sample(sampler.images(), 4)
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[len(cores) // 2]
    os.sched_setaffinity(0, {mine})     # the process stays next to its GPU, and so do its children  # ALT
    host_s, gpu_s = sampler.speeds()
    while gpu_s < 2 * host_s and sampler.batch < 256:
        sampler.batch *= 2
        host_s, gpu_s = sampler.speeds()
    nices = archivers(host_s, gpu_s, idle)
    others = ",".join(str(core) for core in cores if core != mine) if mode == "healthy" else ""
    children = [subprocess.Popen([sys.executable, "-c", ARCHIVER, others, str(nice), str(seconds + 10)])
                for nice in nices]
    time.sleep(0.5)
    batches, end = 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            clean = sampler.sample(sampler.images(), SAMPLING)  # ALT
            clean.float().mean((1, 2, 3)).cpu()
            batches += 1
    finally:
        for child in children:
            child.kill()
            child.wait()
    print(json.dumps({"steps": batches}))


main()
