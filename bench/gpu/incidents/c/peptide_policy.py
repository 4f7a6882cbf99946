"""Policy gradient on peptide strings; how new the proposals are decides the reward."""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["child-wait"], "culprit": "child:sort", "line": "# FAULT"}

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
BATCH, LENGTH, HIDDEN = 512, 64, 2048


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), 256)
        self.core = nn.LSTM(256, HIDDEN, num_layers=3, batch_first=True)
        self.head = nn.Linear(HIDDEN, len(LETTERS))

    def forward(self, ids):
        return self.head(self.core(self.embed(ids))[0])


class SeenInMemory:
    def __init__(self):
        self.seen, self.asked = set(), 0

    def novelty(self, peptides):
        self.seen.update(peptides)
        self.asked += len(peptides)
        return len(self.seen) / self.asked


class SeenOnDisk:
    """A text file of all peptides ever proposed, one per line."""

    def __init__(self, folder, rng):
        self.pool, self.unique, self.rng = Path(folder, "pool.txt"), Path(folder, "unique.txt"), rng
        self.command = ["sort", "-u", "-o", str(self.unique), str(self.pool)]
        self.environment = {**os.environ, "LC_ALL": "C"}

    def fill(self, count):
        letters = np.frombuffer(LETTERS.encode(), np.uint8)
        lines = np.full((count, LENGTH + 1), ord("\n"), np.uint8)
        lines[:, :LENGTH] = letters[self.rng.integers(0, len(letters), (count, LENGTH))]
        self.pool.write_bytes(lines.tobytes())

    def novelty(self, peptides):
        with self.pool.open("a") as pool:
            pool.writelines(f"{peptide}\n" for peptide in peptides)
        subprocess.run(self.command, env=self.environment, check=True)  # FAULT
        return self.unique.stat().st_size / self.pool.stat().st_size

    def fit_to(self, seconds):
        count = 20000
        for _ in range(4):
            self.fill(count)
            begin = time.perf_counter()
            for _ in range(4):
                self.novelty([])
            each = (time.perf_counter() - begin) / 4
            count = min(3_000_000, max(200, round(count * seconds / each)))
        self.fill(count)


def train_step(policy, optimizer, ids, checker):
    logits = policy(ids)
    picked = logits.detach().argmax(-1)
    chosen = F.cross_entropy(logits.flatten(0, 1), picked.flatten(), reduction="none").view(BATCH, LENGTH)
    peptides = ["".join(LETTERS[i] for i in row) for row in picked[:2].tolist()]
    reward = checker.novelty(peptides) - 0.5
    loss = reward * chosen.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 0.65
    torch.manual_seed(seed)
    policy = Policy().cuda()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(len(LETTERS), (BATCH, LENGTH), device="cuda")
    checker = SeenInMemory()
    for _ in range(5):
        train_step(policy, optimizer, ids, checker)
    begin = time.perf_counter()
    for _ in range(12):
        train_step(policy, optimizer, ids, checker)
    step_s = (time.perf_counter() - begin) / 12

    with tempfile.TemporaryDirectory(dir=".", prefix="peptides-") as folder:
        if mode == "fault":
            checker = SeenOnDisk(folder, np.random.default_rng(seed))
            checker.fit_to(share * step_s)
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            loss = train_step(policy, optimizer, ids.roll(steps % LENGTH, 1), checker)
            steps += 1
    print(f"last loss {loss:.4f}")
    print(json.dumps({"steps": steps}))


main()
