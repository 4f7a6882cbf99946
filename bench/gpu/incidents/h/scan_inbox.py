"""Watch a folder for scanned herbarium sheets, classify them tile by tile, keep a journal."""
import ctypes
import json
import multiprocessing as mp
import os
import random
import shutil
import signal
import sys
import tempfile
import time

import numpy as np
import torch

TRUTH = {
    "cause": ["io-wait"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
TILES, TILE_BYTES, WIDTH = 7, 128 * 1024, 4096
RECORD = 16 * 1024


def scanner(inbox, go):
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"scanner", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    rng = random.Random(SEED)
    go.wait()
    number = 0
    while True:
        time.sleep(rng.uniform(0.5, 0.9))
        part = os.path.join(inbox, f"sheet{number}.part")
        with open(part, "wb") as f:
            f.write(rng.randbytes(TILES * TILE_BYTES))
        os.rename(part, os.path.join(inbox, f"sheet{number:05d}.scan"))
        number += 1


def fsync_cost(folder, times):
    """Seconds that one small record takes to get to the disk of this folder."""
    path = os.path.join(folder, "probe")
    record = os.urandom(RECORD)
    took = []
    with open(path, "wb", buffering=0) as f:
        for _ in range(times):
            start = time.perf_counter()
            f.write(record)
            os.fsync(f.fileno())
            took.append(time.perf_counter() - start)
    os.unlink(path)
    return float(np.mean(sorted(took)[: max(1, times * 4 // 5)]))


def make_folder():
    """A temporary folder on a real disk (a RAM disk would lose the journal)."""
    best = None
    for base in (tempfile.gettempdir(), "/var/tmp", os.getcwd()):
        try:
            folder = tempfile.mkdtemp(prefix="herbarium-", dir=base)
        except OSError:
            continue
        cost = fsync_cost(folder, 5)
        if best is None or cost > 4 * best[0]:
            if best:
                shutil.rmtree(best[1], ignore_errors=True)
            best = (cost, folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        if best[0] > 1e-4:
            break
    return best[1]


class Classifier:
    def __init__(self):
        torch.manual_seed(SEED)
        self.weight = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH ** 0.5
        self.staging = torch.empty(TILE_BYTES, dtype=torch.uint8).pin_memory()
        self.passes = 10

    def tile(self, raw):
        self.staging.copy_(torch.frombuffer(raw, dtype=torch.uint8))
        x = self.staging.to("cuda", non_blocking=True).to(torch.bfloat16).view(-1, WIDTH) / 255
        h = x.repeat(1024, 1)
        for _ in range(self.passes):
            h = torch.matmul(h, self.weight)
        return h.mean(0, dtype=torch.float32).cpu()


class Journal:
    def __init__(self, path, per_tile):
        self.file = open(path, "ab", buffering=0)
        self.per_tile, self.due = per_tile, 0.0

    def add(self, scores):
        record = scores.numpy().tobytes()[:RECORD]
        self.due += self.per_tile
        while self.due >= 1:
            self.due -= 1
            self.file.write(record)  # ALT
            if MODE == "fault":
                os.fsync(self.file.fileno())  # FAULT


def main():
    folder = make_folder()
    inbox = os.path.join(folder, "inbox")
    os.mkdir(inbox)
    ctx = mp.get_context("fork")
    go = ctx.Event()
    child = ctx.Process(target=scanner, args=(inbox, go), daemon=True)
    child.start()
    tiles = 0
    try:
        net = Classifier()
        blank = bytearray(os.urandom(TILE_BYTES))
        net.tile(blank)
        for _ in range(2):
            start = time.perf_counter()
            net.tile(blank)
            took = time.perf_counter() - start
            net.passes = max(3, round(net.passes * 0.034 / took))
        start = time.perf_counter()
        for _ in range(4):
            net.tile(blank)
        step = (time.perf_counter() - start) / 4
        share = 0.42 if STRENGTH == "strong" else 0.11
        entries = min(400.0, step * share / (1 - share) / fsync_cost(folder, 30))
        journal = Journal(os.path.join(folder, "journal"), entries)
        go.set()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            sheets = sorted(n for n in os.listdir(inbox) if n.endswith(".scan"))
            if not sheets:
                time.sleep(0.03)  # nothing in the inbox
                continue
            path = os.path.join(inbox, sheets[0])
            with open(path, "rb") as f:
                raw = bytearray(f.read())
            os.unlink(path)
            view = memoryview(raw)
            for at in range(0, len(raw), TILE_BYTES):
                scores = net.tile(view[at:at + TILE_BYTES])
                journal.add(scores)  # ALT
                tiles += 1
    finally:
        child.kill()
        child.join()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": tiles}), flush=True)


if __name__ == "__main__":
    main()
