"""Fine-tune a ResNet on spectrograms of bird song; the loader's workers clean every clip for a fixed time."""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.models import resnet50

TRUTH = {
    "cause": ["input-starved"],
    "culprit": ["child", "child:pt_data_worker"],
    "line": "# FAULT",
    "compound": False,
}
SIDE, SPECIES, FEW, MANY = 128, 200, 2, 6


class Clips(Dataset):
    """Spectrograms; the noise floor is refined row by row for as long as the time budget of a clip allows."""

    def __init__(self, length, seed):
        self.length, self.budget = length, 0.0
        self.bank = np.random.default_rng(seed).gamma(2.0, 2.0, (48, SIDE, SIDE)).astype(np.float32)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        end = time.perf_counter() + self.budget
        spec = self.bank[index % len(self.bank)].copy()
        row = 0
        while True:
            part = spec[row:row + 16]
            part -= 0.05 * part.mean(axis=1, keepdims=True)
            np.maximum(part, 0.0, out=part)
            row = (row + 16) % SIDE
            if time.perf_counter() >= end:
                break
        spec *= 20.0
        np.minimum(spec, 255.0, out=spec)
        return torch.from_numpy(spec.astype(np.uint8)), index % SPECIES


class Trainer:
    def __init__(self):
        self.model = resnet50(weights=None, num_classes=SPECIES).cuda().to(memory_format=torch.channels_last)
        self.model.train()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.total = torch.zeros((), device="cuda")

    def step(self, clips, labels):
        x = clips.to("cuda", non_blocking=True).unsqueeze(1).float().div_(255.0)
        y = labels.to("cuda", non_blocking=True)
        x = F.interpolate(x, size=(224, 224), mode="bilinear", align_corners=False)
        x = x.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.total.add_(loss.detach())


def endless(loader):
    while True:
        yield from loader  # ALT


def clip_budget(data, batch, step_time, share):
    """Time a clip may take so that FEW workers deliver a batch every step_time / (1 - share) seconds."""
    data.budget = step_time / batch
    default_collate([data[i] for i in range(batch)])
    t0 = time.perf_counter()
    default_collate([data[i] for i in range(batch)])
    overhead = max(0.0, time.perf_counter() - t0 - batch * data.budget)
    return max(0.0, (FEW * step_time / (1.0 - share) - overhead) / batch)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    batch = 192 + 16 * (seed % 3)
    data = Clips(200_000, seed)
    trainer = Trainer()

    sample = [t.pin_memory() for t in default_collate([data[i] for i in range(batch)])]
    for i in range(24):  # warm-up, and the time of a step whose data are there
        if i == 10:
            torch.cuda.synchronize()
            t0 = time.perf_counter()
        trainer.step(*sample)
    torch.cuda.synchronize()
    step_time = (time.perf_counter() - t0) / 14
    data.budget = clip_budget(data, batch, step_time, 0.45 if strength == "strong" else 0.12)

    workers = FEW if mode == "fault" else MANY
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers,
                        pin_memory=True, prefetch_factor=2, persistent_workers=True)
    batches = endless(loader)
    for _ in range(8):
        trainer.step(*next(batches))
    torch.cuda.synchronize()

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        clips, labels = next(batches)  # FAULT
        trainer.step(clips, labels)
        steps += 1
        if steps % 100 == 0:
            print("step", steps, "mean loss", float(trainer.total) / steps, file=sys.stderr)
    torch.cuda.synchronize()
    batches.close()
    del batches, loader
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
