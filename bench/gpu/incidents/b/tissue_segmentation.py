"""U-Net training on tissue slides."""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

TRUTH = {"cause": ["alloc-churn"], "culprit": "self", "line": "# FAULT"}


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(),
                         nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, base=64, classes=6):
        super().__init__()
        self.down1, self.down2, self.down3 = block(3, base), block(base, 2 * base), block(2 * base, 4 * base)
        self.up2, self.up1 = block(6 * base, 2 * base), block(3 * base, base)
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.down3(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([b, F.interpolate(c, scale_factor=2.0)], 1))
        a = self.up1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        return self.head(a)


class Slides:
    """A handful of slides that already live on the device; crops are cut from them."""

    def __init__(self, batch, crop):
        side = 2 * crop
        self.batch, self.crop = batch, crop
        self.pixels = torch.rand(batch, 3, side, side, device="cuda", dtype=torch.bfloat16)
        self.masks = torch.randint(0, 6, (batch, side, side), device="cuda")

    def crops(self, n):
        y, x = (37 * n) % self.crop, (91 * n) % self.crop
        window = (slice(None), slice(y, y + self.crop), slice(x, x + self.crop))
        pixels = self.pixels[:, :, y:y + self.crop, x:x + self.crop]
        return pixels.contiguous(memory_format=torch.channels_last), self.masks[window]


class Job:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.net = UNet().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.slides = Slides(batch=8, crop=448 + 32 * (seed % 3))
        self.count = 0
        self.release_every = 0

    def step(self):
        pixels, masks = self.slides.crops(self.count)
        loss = F.cross_entropy(self.net(pixels), masks)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.count += 1
        if self.release_every and self.count % self.release_every == 0:
            del pixels, masks
            torch.cuda.empty_cache()  # FAULT
        return loss.detach()

    def timed(self, steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["fault", "healthy"])
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("strength", nargs="?", default="strong")
    args = parser.parse_args()

    job = Job(args.seed)
    job.timed(5)
    if args.mode == "fault":
        plain_s = job.timed(10)
        job.release_every = 1
        if args.strength == "weak":
            job.timed(2)
            extra_s = job.timed(8) - plain_s
            job.release_every = max(1, round(extra_s / (0.11 * plain_s)))

    first = job.count
    end = time.time() + args.seconds
    while time.time() < end:
        loss = job.step()
        if job.count % 20 == 0:
            loss.item()
    torch.cuda.synchronize()
    print(json.dumps({"steps": job.count - first}))


if __name__ == "__main__":
    main()
