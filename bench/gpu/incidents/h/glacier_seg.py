"""Segment glacier radar images; scores go to a scoreboard that the whole group shares."""
import ctypes
import fcntl
import json
import multiprocessing as mp
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": [["sync-storm"], ["lock-wait"]],
    "culprit": ["self", "child:score-sync"],
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": True,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
CLASSES, BANDS, SIDE, CHANNELS = 24, 8, 128, 256
BATCH = 24 + 4 * (SEED % 3)


def score_sync(path, hold):
    """Uploads the scoreboard over a slow line and keeps it locked meanwhile."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"score-sync", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    rng = random.Random(SEED)
    while hold.value == 0:
        time.sleep(0.01)
    while True:
        with open(path, "a+") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            f.read()
            time.sleep(hold.value * rng.uniform(0.75, 1.25))  # ALT
            f.truncate(0)
        time.sleep(0.0004)


def make_net():
    parts = [nn.Conv2d(BANDS, CHANNELS, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        parts += [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()]
    parts.append(nn.Conv2d(CHANNELS, CLASSES, 1))
    return nn.Sequential(*parts)


class Trainer:
    def __init__(self, scoreboard):
        torch.manual_seed(SEED)
        self.scoreboard = scoreboard
        with torch.device("cuda"):
            self.net = make_net().to(torch.bfloat16, memory_format=torch.channels_last)
            self.confusion = torch.zeros(CLASSES * CLASSES, dtype=torch.int64)
            self.loss_sum = torch.zeros(())
            self.ones = torch.ones(BATCH * SIDE * SIDE, dtype=torch.int64)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self.data = []
        for _ in range(6):
            image = torch.randn(BATCH, BANDS, SIDE, SIDE).to(torch.bfloat16)
            image = image.contiguous(memory_format=torch.channels_last).pin_memory()
            label = torch.randint(0, CLASSES, (BATCH, SIDE, SIDE)).pin_memory()
            self.data.append((image, label))
        rng = random.Random(SEED)
        self.questions = [(rng.randrange(BATCH), rng.randrange(CLASSES)) for _ in range(4000)]
        self.hits = [0] * CLASSES

    def step(self, i):
        image, label = self.data[i % len(self.data)]
        image = image.to("cuda", non_blocking=True)
        label = label.to("cuda", non_blocking=True)
        scores = self.net(image)
        loss = F.cross_entropy(scores.float(), label)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()
        return scores.detach().argmax(1), label

    def hits_one_by_one(self, guess, label, count):
        for at, kind in self.questions[:count]:
            same = (guess[at] == kind) & (label[at] == kind)  # ALT
            self.hits[kind] += same.sum().item()  # FAULT

    def hits_on_gpu(self, guess, label):
        cell = (label * CLASSES + guess).flatten()
        self.confusion.scatter_add_(0, cell, self.ones)

    def report(self, i, path):
        with open(path, "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)  # FAULT
            f.write(f"{os.getpid()} {i} {sum(self.hits)}\n")


def fit(trainer):
    """Seconds of a step, and of one question about the guesses."""
    for i in range(8):
        guess, label = trainer.step(i)
        trainer.hits_on_gpu(guess, label)
    trainer.hits_one_by_one(guess, label, 20)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(15):
        guess, label = trainer.step(i)
    torch.cuda.synchronize()
    step = (time.perf_counter() - start) / 15
    start = time.perf_counter()
    trainer.hits_one_by_one(guess, label, 100)
    return step, (time.perf_counter() - start) / 100


def main():
    folder = tempfile.mkdtemp(prefix="glacier-")
    shared = os.path.join(folder, "scoreboard")
    private = os.path.join(folder, "own-scores")
    ctx = mp.get_context("fork")
    hold = ctx.Value("d", 0.0)
    child = ctx.Process(target=score_sync, args=(shared, hold), daemon=True)
    child.start()
    steps = 0
    try:
        trainer = Trainer(shared if MODE == "fault" else private)
        step, question = fit(trainer)
        storm = step * (0.42 if STRENGTH == "strong" else 0.08)
        questions = max(5, min(4000, round(storm / question)))
        cycle = (step + storm) / (2.5 if STRENGTH == "strong" else 6.5)
        hold.value = max(0.001, cycle - 0.0005)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            guess, label = trainer.step(steps)
            if MODE == "fault":
                trainer.hits_one_by_one(guess, label, questions)  # ALT
            else:
                trainer.hits_on_gpu(guess, label)
            trainer.report(steps, trainer.scoreboard)  # ALT
            steps += 1
            if steps % 20 == 0:
                print(f"step {steps} loss {trainer.loss_sum.item() / 20:.3f}", file=sys.stderr)
                trainer.loss_sum.zero_()
        torch.cuda.synchronize()
    finally:
        child.kill()
        child.join()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
