"""Vessel segmentation on retina scans: a small U-Net and a dataset that fits in memory."""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["host-compute"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

SIDE, BATCH, SCANS = 256, 24, 192


class Retina(Dataset):
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.scans = self.rng.integers(0, 256, (SCANS, 3, SIDE, SIDE), dtype=np.uint8)
        self.vessels = (self.rng.random((SCANS, SIDE, SIDE), dtype=np.float32) > 0.9).astype(np.uint8)
        self.warps_per_scan = 0.0
        self.due = 0.0

    def __len__(self):
        return SCANS * 400

    def __getitem__(self, index):
        scan, vessel = self.scans[index % SCANS], self.vessels[index % SCANS]
        self.due += self.warps_per_scan
        while self.due >= 1.0:
            scan = self.elastic(scan)  # ALT
            self.due -= 1.0
        return torch.from_numpy(scan), torch.from_numpy(vessel)

    def elastic(self, scan):
        columns = np.arange(SIDE, dtype=np.float64)
        shift = self.rng.normal(0, 1, 3 * SIDE).cumsum() / 8
        rows = [np.interp(columns + s, columns, row) for row, s in zip(scan.reshape(-1, SIDE), shift)]  # FAULT
        return np.stack(rows).astype(np.uint8).reshape(scan.shape)


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, base=128):
        super().__init__()
        self.down1 = double_conv(3, base)
        self.down2 = double_conv(base, 2 * base)
        self.deep = double_conv(2 * base, 4 * base)
        self.up2 = double_conv(6 * base, 2 * base)
        self.up1 = double_conv(3 * base, base)
        self.head = nn.Conv2d(base, 2, 1)

    def forward(self, x):
        fine = self.down1(x)
        middle = self.down2(F.max_pool2d(fine, 2))
        deep = self.deep(F.max_pool2d(middle, 2))
        middle = self.up2(torch.cat((middle, F.interpolate(deep, scale_factor=2)), 1))
        fine = self.up1(torch.cat((fine, F.interpolate(middle, scale_factor=2)), 1))
        return self.head(fine)


class Trainer:
    def __init__(self, dataset, seed):
        torch.manual_seed(seed)
        torch.backends.cudnn.benchmark = True
        self.loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=0, drop_last=True)
        self.net = UNet().to("cuda", memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def fit(self, seconds):
        steps, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for scans, vessels in self.loader:
                x = scans.to("cuda").to(torch.float32, memory_format=torch.channels_last).div_(255)
                loss = F.cross_entropy(self.net(x), vessels.to("cuda").long())
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                self.last_loss = loss.item()
                steps += 1
                if time.perf_counter() - begin >= seconds:
                    break
        return steps, (time.perf_counter() - begin) / steps


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    dataset = Retina(seed)
    trainer = Trainer(dataset, seed)
    trainer.fit(3.0)
    _, step_s = trainer.fit(2.0)
    if mode == "fault":
        begin = time.perf_counter()
        for scan in dataset.scans[:12]:
            dataset.elastic(scan)
        warp_s = (time.perf_counter() - begin) / 12
        dataset.warps_per_scan = (0.11 if weak else 0.7) * step_s / (BATCH * warp_s)
    steps, step_s = trainer.fit(seconds)
    print(f"loss {trainer.last_loss:.4f}, {step_s * 1e3:.1f} ms per step")
    print(json.dumps({"steps": steps}))


main()
