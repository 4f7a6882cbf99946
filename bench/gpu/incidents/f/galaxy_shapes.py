"""Learns the shapes of galaxies from stacks of short exposures that loader processes unpack, enlarge and add up."""
import json
import sys
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": [["input-starved"], ["alloc-churn"]], "culprit": ["child:pt_data_worker", "child:python", "self"],
         "line": "# FAULT", "alt_line": "# ALT"}

BATCH, SMALL, SIZE, EXPOSURES, SHAPES = 64, 56, 112, 512, 10


class Galaxies(Dataset):
    """A batch at a time; `frames` exposures go into it, and may be changed while the loader runs."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.packed = [zlib.compress(rng.poisson(30, (3, SMALL, SMALL)).astype(np.uint8)) for _ in range(EXPOSURES)]
        self.frames = torch.tensor([BATCH]).share_memory_()
        places = np.linspace(0, SMALL - 1.001, SIZE)
        self.low = places.astype(int)
        self.part = (places - self.low).astype(np.float32)

    def __len__(self):
        return 1 << 20

    def enlarge(self, frame):
        rows = frame[:, self.low] + (frame[:, self.low + 1] - frame[:, self.low]) * self.part[:, None]  # ALT
        return rows[:, :, self.low] + (rows[:, :, self.low + 1] - rows[:, :, self.low]) * self.part  # ALT

    def __getitem__(self, index):
        stack, frames = np.zeros((BATCH, 3, SIZE, SIZE), np.float32), int(self.frames)
        for number in range(frames):
            packed = self.packed[(index * frames + number) % EXPOSURES]
            frame = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(3, SMALL, SMALL)  # ALT
            stack[number % BATCH] += self.enlarge(frame.astype(np.float32))  # ALT
        return torch.from_numpy((stack * (BATCH / frames)).clip(0, 255).astype(np.uint8))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (64, 64, 128, 128, 256, 256)
        self.stem, self.head = nn.Conv2d(3, 64, 3, padding=1), nn.Linear(256, SHAPES)
        self.convs = nn.ModuleList(nn.Conv2d(before, after, 3, stride=1 + (after > before), padding=1)
                                   for before, after in zip((64,) + widths, widths))

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv in self.convs:
            x = F.silu(conv(x))
        return self.head(x.mean((2, 3))).float()


class Trainer:
    def __init__(self, seed, tidy):
        torch.manual_seed(seed)
        self.model = Classifier().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self.shapes, self.tidy = torch.randint(0, SHAPES, (BATCH,), device="cuda"), tidy

    def learn(self, images, rounds):
        """Rounds over the same images, each time turned by another quarter."""
        images = (images.cuda().to(torch.bfloat16) / 255).contiguous(memory_format=torch.channels_last)  # ALT
        for number in range(rounds):
            loss = F.cross_entropy(self.model(images.rot90(number, (2, 3))), self.shapes)  # ALT
            loss.backward()  # ALT
            self.optimizer.step()
            self.optimizer.zero_grad()
        value = loss.item()
        del images, loss
        if self.tidy:
            torch.cuda.empty_cache()  # FAULT
        return value


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.12 if sys.argv[4:5] == ["weak"] else 0.5
    galaxies = Galaxies(seed)
    loader = DataLoader(galaxies, batch_size=None, num_workers=2 if mode == "fault" else 8, prefetch_factor=2)
    batches, trainer = iter(loader), Trainer(seed, tidy=False)
    images = next(batches)
    trainer.learn(images, 4)
    lean_s = timed(lambda: trainer.learn(images, 2), 6)
    round_s = (timed(lambda: trainer.learn(images, 12), 4) - lean_s) / 10
    trainer.tidy = True
    trainer.learn(images, 2)
    churn_s = max(1e-4, timed(lambda: trainer.learn(images, 2), 6) - lean_s)
    # half of the idle time is churn, the other half a wait for the loader
    rounds = max(1, round(2 * churn_s * (1 - idle) / (idle * round_s)))
    busy_s = rounds * round_s
    if mode == "fault":
        for _ in range(5):                      # those that lie ready
            next(batches)
        frame_s = timed(lambda: next(batches), 12) / BATCH
        galaxies.frames[0] = max(8, round(max(busy_s + 2 * churn_s, busy_s / (1 - idle)) / frame_s))
    else:
        trainer.tidy = False
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        images = next(batches)  # FAULT
        loss = trainer.learn(images, rounds)  # ALT
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps} loss {loss:.4f}", flush=True)
    del batches
    print(json.dumps({"steps": steps}))


main()
