"""Train a small U-Net on image tiles read through a DataLoader with two workers."""
import json, sys, time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TRUTH = {
    "cause": ["input-starved"],
    "culprit": "child:pt_data_worker",
    "line": "# FAULT",
    "alt_line": "# ALT",  # where the training thread waits for the workers
    "compound": False,
}
SIZE, WORKERS = 256, 2


def elastic(img, mask, rng, deadline):
    """Random elastic warp: smooth a displacement field, then resample rows and columns."""
    field = rng.standard_normal((2, 128, 128), dtype=np.float32)
    while time.perf_counter() < deadline:
        field = (field + np.roll(field, 1, 1) + np.roll(field, -1, 1) + np.roll(field, 1, 2) + np.roll(field, -1, 2)) * 0.2  # FAULT
    base = np.arange(SIZE)
    dy = np.repeat(field[0].mean(1), 2) * 40
    dx = np.repeat(field[1].mean(0), 2) * 40
    yy = np.clip(base + dy, 0, SIZE - 1).astype(np.intp)
    xx = np.clip(base + dx, 0, SIZE - 1).astype(np.intp)
    return img[yy][:, xx], mask[yy][:, xx]


class Tiles(Dataset):
    def __init__(self, seed, item_s):
        rng = np.random.default_rng(seed)
        self.images = rng.integers(0, 256, (48, SIZE + 64, SIZE + 64, 3), dtype=np.uint8)
        self.masks = (self.images[..., 0] // 64).astype(np.uint8)
        self.seed, self.item_s = seed, item_s

    def __len__(self):
        return 5_000_000

    def __getitem__(self, i):
        t0 = time.perf_counter()
        rng = np.random.default_rng((self.seed, i))
        y, x = rng.integers(0, 64, 2)
        k = i % len(self.images)
        img = self.images[k, y:y + SIZE, x:x + SIZE]
        mask = self.masks[k, y:y + SIZE, x:x + SIZE]
        if rng.random() < 0.5:
            img, mask = img[:, ::-1], mask[:, ::-1]
        if self.item_s > 0:
            img, mask = elastic(img, mask, rng, t0 + self.item_s)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), torch.from_numpy(np.ascontiguousarray(mask))


def double_conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                         nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w=64, classes=4):
        super().__init__()
        self.d1, self.d2, self.mid = double_conv(3, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.u2, self.u1 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), nn.ConvTranspose2d(2 * w, w, 2, 2)
        self.c2, self.c1 = double_conv(4 * w, 2 * w), double_conv(2 * w, w)
        self.head = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        b = self.c2(torch.cat([self.u2(m), b], 1))
        return self.head(self.c1(torch.cat([self.u1(b), a], 1)))


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    batch = 24 + 2 * (seed % 4)
    net = UNet().cuda().to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)

    def train_step(images, masks):
        x = images.cuda(non_blocking=True).float().div_(255).contiguous(memory_format=torch.channels_last)
        y = masks.cuda(non_blocking=True).long()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    images = torch.randint(0, 256, (batch, 3, SIZE, SIZE), dtype=torch.uint8).pin_memory()
    masks = torch.randint(0, 4, (batch, SIZE, SIZE), dtype=torch.uint8).pin_memory()
    for i in range(30):  # warm-up, then time the step to size the input pipeline
        if i == 10:
            torch.cuda.synchronize()
            t0 = time.perf_counter()
        train_step(images, masks)
    torch.cuda.synchronize()
    step_s = (time.perf_counter() - t0) / 20

    share = 0.07 if strength == "weak" else 0.6
    item_s = WORKERS * step_s / batch / (1 - share) - 0.0003 if mode == "fault" else 0.0
    loader = DataLoader(Tiles(seed, item_s), batch_size=batch, num_workers=WORKERS, pin_memory=True,
                        prefetch_factor=2, drop_last=True, multiprocessing_context="fork")
    it = iter(loader)
    steps, history, end = 0, [], time.time() + seconds
    while time.time() < end:
        images, masks = next(it)  # ALT
        history.append(train_step(images, masks))
        steps += 1
        if len(history) == 100:
            print("loss", torch.stack(history).mean().item(), file=sys.stderr)
            history.clear()
    torch.cuda.synchronize()
    del it, loader
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
