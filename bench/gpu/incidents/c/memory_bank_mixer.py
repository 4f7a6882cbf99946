"""Contrastive text encoder: eight loader workers unpack shards, negatives come from a bank in host memory."""
import json
import sys
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": [["input-starved"], ["pageable-copy"]],
         "culprit": ["child:pt_data_worker", "child:python3", "self"],
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

BATCH, LENGTH, WIDTH, GROUPS, WORKERS = 256, 256, 1024, 256, 8
BANK_ROWS = 1 << 20


class Shards(Dataset):
    def __init__(self, seed, unpack_s):
        rng = np.random.default_rng(seed)
        texts = [rng.choice(np.arange(97, 113, dtype=np.uint8), BATCH * LENGTH).tobytes() for _ in range(4)]
        self.shards = [zlib.compress(text, 6) for text in texts]
        self.seed, self.unpack_s = seed, unpack_s

    def __len__(self):
        return 1_000_000

    def __getitem__(self, number):
        begin = time.perf_counter()
        order = np.random.default_rng((self.seed, number)).permutation(BATCH)
        while True:
            text = zlib.decompress(self.shards[number % len(self.shards)])
            if time.perf_counter() - begin >= self.unpack_s:
                break
        return torch.from_numpy(np.frombuffer(text, np.uint8).reshape(BATCH, LENGTH)[order])


class MixerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.across = nn.Linear(LENGTH, LENGTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, depth=7):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.blocks = nn.Sequential(*[MixerBlock() for _ in range(depth)])

    def forward(self, text):
        return F.normalize(self.blocks(self.embed(text)).mean(1), dim=-1)


class Bank:
    """Rows of past embeddings; a slab of them is averaged into the negatives of a step."""

    def __init__(self, rows, pinned):
        self.data = torch.randn(BANK_ROWS, WIDTH, device="cuda", dtype=torch.bfloat16).cpu()
        self.rows, self.turn, self.ahead = rows, 0, None
        if pinned:
            self.data, self.stream = self.data.pin_memory(), torch.cuda.Stream()
            self.prefetch()

    def slice(self):
        self.turn += 1
        start = self.turn * 4099 * 64 % (BANK_ROWS - self.rows)
        return self.data[start:start + self.rows]

    def prefetch(self):
        with torch.cuda.stream(self.stream):
            self.ahead = self.slice().to("cuda", non_blocking=True)

    def slab(self):
        if self.ahead is None:
            return self.slice().to("cuda")  # ALT
        torch.cuda.current_stream().wait_stream(self.stream)
        slab = self.ahead
        slab.record_stream(torch.cuda.current_stream())
        self.prefetch()
        return slab


def step(model, optimizer, text, slab):
    negatives = F.normalize(slab.unflatten(0, (GROUPS, -1)).mean(1), dim=-1)
    z = model(text.to("cuda").long())
    loss = F.cross_entropy((z @ negatives.T).float() / 0.1, torch.arange(BATCH, device="cuda"))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def timed(count, action):
    begin = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    torch.manual_seed(seed)
    model = Encoder().to("cuda", torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    bank = Bank(GROUPS * 512, pinned=mode == "healthy")
    text, slab = torch.zeros(BATCH, LENGTH, dtype=torch.uint8), torch.zeros(bank.rows, WIDTH, device="cuda").bfloat16()
    timed(5, lambda: step(model, optimizer, text, slab))
    step_s, unpack_s = timed(12, lambda: step(model, optimizer, text, slab)), 0.0
    if mode == "fault":
        timed(2, bank.slab)
        row_s = timed(4, bank.slab) / bank.rows
        copy_s, wait_s = (0.12 * step_s, 0.125 * step_s) if weak else (0.8 * step_s, 0.9 * step_s)
        bank.rows = min(BANK_ROWS // 2, max(1, round(copy_s / row_s / GROUPS)) * GROUPS)
        unpack_s = WORKERS * (step_s + bank.rows * row_s + wait_s) - 0.002
    loader = DataLoader(Shards(seed, unpack_s), batch_size=None, num_workers=WORKERS, prefetch_factor=1,
                        multiprocessing_context="spawn", persistent_workers=True)
    batches, steps = iter(loader), 0
    for _ in range(WORKERS):
        next(batches)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        text = next(batches)  # FAULT
        step(model, optimizer, text, bank.slab())
        steps += 1
    del batches, loader
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
