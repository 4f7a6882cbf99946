"""Diffusion sampler in latent space: a convolutional denoiser, DDIM steps, and dynamic thresholding of every tile."""
import json
import math
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["launch-bound"],
    "culprit": "self",
    "line": "# FAULT",
    "compound": False,
}
CHANNELS, SIDE, TILE, WIDTH, BLOCKS, STEPS = 4, 64, 8, 384, 8, 24


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, WIDTH), nn.GroupNorm(16, WIDTH)
        self.conv1, self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.shift = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.shift(emb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(CHANNELS, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, CHANNELS, 3, padding=1)
        self.times = nn.Embedding(STEPS, WIDTH)
        self.blocks = nn.ModuleList(Residual() for _ in range(BLOCKS))

    def forward(self, x, t):
        emb, h = self.times.weight[t:t + 1], self.first(x)
        for block in self.blocks:
            h = block(h, emb)
        return self.last(h)


def threshold_tiles(x):
    """Scale every tile so that no value is beyond 1: all tiles at once."""
    n = SIDE // TILE
    tiles = x.view(-1, CHANNELS, n, TILE, n, TILE)
    return tiles.div(tiles.abs().amax((1, 3, 5), keepdim=True).clamp_(min=1.0)).view_as(x)


def threshold_one_by_one(x, count):
    """The same, tile after tile, for the tiles that the layout names."""
    n = SIDE // TILE
    for j in range(count):
        row, col = j // n % n * TILE, j % n * TILE
        tile = x[j // (n * n) % len(x), :, row:row + TILE, col:col + TILE]
        peak = tile.abs().amax().clamp_(min=1.0)  # FAULT
        tile.div_(peak)  # ALT
    return x


class Sampler:
    def __init__(self, batch):
        self.net = Denoiser().to("cuda", torch.bfloat16, memory_format=torch.channels_last).eval()
        self.batch, self.x, self.tiles = batch, None, None
        self.images = torch.empty(batch, CHANNELS, SIDE, SIDE).pin_memory()
        angles = [0.5 * math.pi * (1.0 - (i + 1) / (STEPS + 1)) for i in range(STEPS)] + [0.0]
        self.alpha, self.sigma = [math.cos(a) for a in angles], [math.sin(a) for a in angles]

    def step(self, i):
        t = i % STEPS
        if t == 0:
            self.x = torch.randn(self.batch, CHANNELS, SIDE, SIDE, device="cuda")
        noisy = self.x.to(torch.bfloat16, memory_format=torch.channels_last)
        eps = self.net(noisy, t).float().contiguous()
        clean = (self.x - self.sigma[t] * eps) / self.alpha[t]
        clean = threshold_tiles(clean) if self.tiles is None else threshold_one_by_one(clean, self.tiles)
        self.x = self.alpha[t + 1] * clean + self.sigma[t + 1] * eps
        if t == STEPS - 1:
            self.images.copy_(self.x, non_blocking=True)

    def timed(self, tiles, count=6):
        self.tiles = tiles
        self.step(0)
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for i in range(count):
            self.step(i)
        torch.cuda.synchronize()
        return (time.perf_counter() - t0) / count


def layout_size(sampler, step_time, share):
    """How many tiles make a step take step_time / (1 - share)."""
    target = step_time / (1.0 - share)
    few, many = 2000, 3000
    t_few, t_many = sampler.timed(few), sampler.timed(many)
    per_tile = max(2e-6, (t_many - t_few) / (many - few))
    count = max(1, round(few + (target - t_few) / per_tile))
    for _ in range(3):
        count = max(1, round(count + (target - sampler.timed(count)) / per_tile))
    return count


@torch.inference_mode()
def sample(mode, seconds, strength, sampler):
    sampler.timed(None, 12)  # warm-up
    step_time = sampler.timed(None, 20)
    if mode == "fault":
        sampler.tiles = layout_size(sampler, step_time, 0.45 if strength == "strong" else 0.11)
    steps, end = 0, time.time() + seconds
    while time.time() < end:
        sampler.step(steps)
        steps += 1
        if steps % (10 * STEPS) == 0:
            print("step", steps, "tiles", sampler.tiles, file=sys.stderr)
    torch.cuda.synchronize()
    return steps


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    steps = sample(mode, seconds, strength, Sampler(48 + 4 * (seed % 3)))
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
