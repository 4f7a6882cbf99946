"""Trains a click model for advertisements on embeddings that live in a memory-mapped table."""
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["page-fault"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

ROWS, WIDTH, BATCH, FIELDS, HIDDEN = 1 << 20, 512, 1024, 24, 8192


def write_table(path, rng):
    block = (rng.standard_normal((1 << 15, WIDTH), np.float32) * 0.1).astype(np.float16)
    with open(path, "wb") as file:
        for _ in range(ROWS // len(block)):
            file.write(block)


class Table:
    """Embeddings of everything an impression may have: advertisement, site, place, hour ..."""

    def __init__(self, path, keep):
        self.path, self.kept = path, None
        if keep:
            self.kept = self.open()
            self.checksum = float(self.kept[::4, 0].astype(np.float32).sum())      # every page once

    def open(self):
        return np.memmap(self.path, np.float16, "r", shape=(ROWS, WIDTH))

    def fetch(self, rows, out):
        table = self.open() if self.kept is None else self.kept  # ALT
        np.take(np.asarray(table), rows, axis=0, out=out, mode="clip")  # FAULT
        return out  # ALT


class Clicks(nn.Module):
    def __init__(self):
        super().__init__()
        self.bottom = nn.Linear(FIELDS * WIDTH, HIDDEN)
        self.middle = nn.Linear(HIDDEN, HIDDEN)
        self.top = nn.Linear(HIDDEN + FIELDS * FIELDS, 1)

    def forward(self, fields):
        crossed = torch.bmm(fields, fields.transpose(1, 2)).flatten(1)
        x = F.relu(self.bottom(F.dropout(fields.flatten(1), 0.1)))
        x = x + F.relu(self.middle(x))
        return self.top(torch.cat([x, crossed], 1))[:, 0].float()


class Trainer:
    def __init__(self):
        with torch.device("cuda"):
            self.model = Clicks().to(torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def launch(self, fields, clicked, rounds):
        """Several rounds over the same impressions, each with another dropout."""
        fields = fields.cuda(non_blocking=True).to(torch.bfloat16).view(BATCH, FIELDS, WIDTH)
        clicked = clicked.cuda(non_blocking=True)
        for _ in range(rounds):
            loss = F.binary_cross_entropy_with_logits(self.model(fields), clicked)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.1 if sys.argv[4:5] == ["weak"] else 0.5
    torch.manual_seed(seed)
    rng, path, trainer = np.random.default_rng(seed), f"embeddings-{os.getpid()}.bin", Trainer()
    write_table(path, rng)
    buffers = [torch.zeros(BATCH * FIELDS, WIDTH, dtype=torch.float16).pin_memory() for _ in range(2)]
    clicked = (torch.rand(BATCH) < 0.1).float().pin_memory()

    def fetch(table, number):
        return table.fetch(rng.integers(0, ROWS, BATCH * FIELDS), buffers[number % 2].numpy())  # ALT

    try:
        trainer.launch(buffers[0], clicked, 4).item()
        begin = time.perf_counter()
        trainer.launch(buffers[0], clicked, 20).item()
        round_s = (time.perf_counter() - begin) / 20
        table = Table(path, keep=False)
        fetch(table, 0)
        begin = time.perf_counter()
        for number in range(4):
            fetch(table, number)
        fetch_s = (time.perf_counter() - begin) / 4
        rounds = max(1, round(fetch_s * (1 - idle) / (idle * round_s)))
        if mode == "healthy":
            table = Table(path, keep=True)
            fetch(table, 0)
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            if mode == "fault":
                fetch(table, steps)  # ALT
                loss = trainer.launch(buffers[steps % 2], clicked, rounds).item()
            else:       # the next impressions are fetched while the GPU learns from these
                pending = trainer.launch(buffers[steps % 2], clicked, rounds)
                fetch(table, steps + 1)
                loss = pending.item()
            steps += 1
            if steps % 20 == 0:
                print(f"step {steps} loss {loss:.4f}", flush=True)
    finally:
        os.unlink(path)
    print(json.dumps({"steps": steps}))


main()
