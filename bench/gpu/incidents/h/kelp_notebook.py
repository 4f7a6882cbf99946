"""A notebook kernel: a marine biologist runs a cell on kelp survey frames, then thinks."""
import ctypes
import json
import multiprocessing as mp
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

TRUTH = {
    "cause": ["child-wait"],
    "culprit": "child:gzip",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

CHUNKS = 3
WIDTH = 4096


def biologist(conn, seed):
    """Sits in front of the notebook (started with spawn)."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"biologist", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    rng = random.Random(seed)
    conn.send("ready")
    try:
        conn.recv()
        turn = 0
        while True:
            time.sleep(rng.uniform(0.45, 0.85))
            conn.send("peek" if turn % 4 == 3 else "survey")
            conn.recv()
            turn += 1
    except (EOFError, OSError):
        pass


class Notebook:
    def __init__(self, folder, mode, seed):
        self.folder, self.mode = folder, mode
        torch.manual_seed(seed)
        self.frames = torch.randn(65536, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.basis = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) / WIDTH ** 0.5
        self.passes = 10
        self.running = []
        self.mean = None
        self.done = 0

    def embed(self):
        h = self.frames
        for _ in range(self.passes):
            h = torch.matmul(h, self.basis)
        return h.mean(0, dtype=torch.float32).cpu()

    def log_path(self, chunk):
        return os.path.join(self.folder, f"frames{chunk}.csv")

    def archive(self, chunk):
        """Keep the frame log of this chunk, compressed."""
        path = self.log_path(chunk)
        with open(path + ".gz", "wb") as out:
            if self.mode == "fault":
                subprocess.run(["gzip", "-9", "-c", path], stdout=out, check=True)  # FAULT
            else:
                self.running = [p for p in self.running if p.poll() is None]
                self.running.append(subprocess.Popen(["gzip", "-9", "-c", path], stdout=out))

    def survey(self):
        for chunk in range(CHUNKS):
            self.mean = self.embed()
            self.archive(chunk)  # ALT
            self.done += 1
        return float(self.mean.norm())

    def peek(self):
        return float(self.frames[:1024].float().std())

    def run_cell(self, name):
        return {"survey": self.survey, "peek": self.peek}[name]()  # ALT


def gzip_time(path, times=3):
    best = 1e9
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(["gzip", "-9", "-c", path], stdout=subprocess.DEVNULL, check=True)
        best = min(best, time.perf_counter() - start)
    return best


def fit(book, seed, strength):
    book.embed()
    start = time.perf_counter()
    book.embed()
    took = time.perf_counter() - start
    book.passes = max(5, round(book.passes * 0.11 / took))
    start = time.perf_counter()
    book.embed()
    step = time.perf_counter() - start

    rows = np.random.default_rng(seed).integers(0, 5000, (20000, 12)).tolist()
    text = "\n".join(",".join(map(str, row)) for row in rows).encode()
    probe = os.path.join(book.folder, "probe.csv")
    with open(probe, "wb") as f:
        f.write(text)
    whole = gzip_time(probe)
    with open(probe, "wb") as f:
        f.write(text[:1000])
    start_up = gzip_time(probe)
    share = 0.42 if strength == "strong" else 0.11
    want = step * share / (1 - share)
    size = int(len(text) * (want - start_up) / max(whole - start_up, 1e-3))
    size = max(4000, size)
    text = text * (size // len(text) + 1)
    for chunk in range(CHUNKS):
        with open(book.log_path(chunk), "wb") as f:
            f.write(text[:size])


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ctx = mp.get_context("spawn")
    here, there = ctx.Pipe()
    user = ctx.Process(target=biologist, args=(there, seed), daemon=True)
    user.start()
    there.close()
    folder = tempfile.mkdtemp(prefix="kelp-")
    book = None
    try:
        book = Notebook(folder, mode, seed)
        fit(book, seed, strength)
        here.recv()
        here.send("kernel up")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if here.poll(0.2):
                here.send(book.run_cell(here.recv()))  # ALT
    finally:
        user.kill()
        user.join()
        for p in (book.running if book else []):
            p.kill()
            p.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": book.done}), flush=True)


if __name__ == "__main__":
    main()
