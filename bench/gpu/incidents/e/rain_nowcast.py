"""Trains a rain nowcast on radar sequences and journals a forecast for the archive as it goes."""
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["io-wait"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

PAST, FUTURE, SIZE, BATCH, WIDTH, BLOCKS = 8, 4, 128, 32, 256, 8
JOURNAL_RECORDS = 1024


class Radar(Dataset):
    """Crops of radar sweeps; a worker makes its sweeps when it is first asked."""

    def __init__(self, seed):
        self.seed, self.sweeps = seed, None

    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        if self.sweeps is None:
            self.sweeps = np.random.default_rng(self.seed).integers(0, 255, (96, 256, 256), np.uint8)
        first, top, left = index * 7 % 80, index * 31 % 128, index * 17 % 128
        crop = self.sweeps[first:first + PAST + FUTURE, top:top + SIZE, left:left + SIZE]
        return torch.from_numpy(np.ascontiguousarray(crop))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))

    def forward(self, x):
        return x + self.second(F.relu(self.first(x)))


class Nowcast(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(PAST, WIDTH, 4, stride=2, padding=1)
        self.body = nn.Sequential(*(Residual() for _ in range(BLOCKS)))
        self.head = nn.Conv2d(WIDTH, 4 * FUTURE, 3, padding=1)

    def forward(self, past):
        return F.pixel_shuffle(self.head(F.relu(self.body(self.stem(past)))), 2)


class Trainer:
    def __init__(self):
        self.model = Nowcast().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def step(self, sweeps):
        sweeps = sweeps.cuda(non_blocking=True).to(torch.bfloat16) / 255
        forecast = self.model(sweeps[:, :PAST].contiguous(memory_format=torch.channels_last))
        F.l1_loss(forecast, sweeps[:, PAST:]).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return forecast.detach()[0].to(torch.float16).cpu().numpy().tobytes()


class Journal:
    """Forecasts on disk, in a ring of records; a record counts once it is safe there."""

    def __init__(self, path):
        self.path, self.spent_s, self.count = path, 0.0, 0
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def append(self, record):
        begin = time.perf_counter()
        os.pwrite(self.fd, record, self.count % JOURNAL_RECORDS * len(record))  # ALT
        os.fsync(self.fd)  # FAULT
        self.count += 1
        self.spent_s += time.perf_counter() - begin

    def close(self):
        os.close(self.fd)
        os.unlink(self.path)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.09 if sys.argv[4:5] == ["weak"] else 0.48
    torch.manual_seed(seed)
    loader = DataLoader(Radar(seed), BATCH, num_workers=2, pin_memory=True, prefetch_factor=3,
                        multiprocessing_context="spawn")
    batches = iter(loader)
    trainer, journal, writer = Trainer(), Journal(f"nowcast-{os.getpid()}.journal"), ThreadPoolExecutor(1)
    sample = torch.randint(0, 255, (BATCH, PAST + FUTURE, SIZE, SIZE), dtype=torch.uint8)
    for _ in range(6):
        record = trainer.step(sample)
    journal.append(record)
    trainer.step(next(batches))
    pending = writer.submit(journal.append, record)
    pending.result()
    journal.spent_s, steps, begin = 0.0, 0, time.perf_counter()
    for sweeps in batches:
        record = trainer.step(sweeps)
        steps += 1
        if mode == "healthy":
            if pending.done():
                pending = writer.submit(journal.append, record)
        else:       # the archive wants as many copies as it gets within its share of the time
            while journal.spent_s < share * (time.perf_counter() - begin):
                journal.append(record)  # ALT
        if time.perf_counter() - begin >= seconds:
            break
    writer.shutdown()
    journal.close()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
