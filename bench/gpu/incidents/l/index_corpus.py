"""Embed a corpus and append the vectors to a durable journal.

usage: index_corpus.py MODE SECONDS SEED [STRENGTH]
"""
import collections
import json
import os
import queue
import shutil
import statistics
import sys
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["io-wait"], "culprit": "self", "line": "# FAULT", "compound": False}

RECORD = 64 * 1024
RING = 512          # records kept in the journal file


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.proj(a)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Journal:
    """Fixed-size ring of records; each one is on disk when commit() returns."""

    def __init__(self, folder):
        self.fd = os.open(os.path.join(folder, "vectors.journal"), os.O_RDWR | os.O_CREAT, 0o600)
        for k in range(RING):
            os.pwrite(self.fd, b"\0" * RECORD, k * RECORD)
        os.fsync(self.fd)
        self.next = 0
        self.recent = collections.deque(maxlen=64)

    def commit(self, record):
        t = time.perf_counter()
        os.pwrite(self.fd, record, (self.next % RING) * RECORD)
        os.fsync(self.fd)  # FAULT
        spent = time.perf_counter() - t
        self.recent.append(spent)
        self.next += 1
        return spent

    def latency(self):
        recent = list(self.recent)
        return sum(recent) / len(recent)

    def close(self):
        os.close(self.fd)


def pick_folder():
    """The journal belongs on a real disk: take the place where fsync does something."""
    best, best_s = None, 0.0
    here = os.path.dirname(os.path.abspath(__file__))
    for place in (here, os.getcwd(), "/var/tmp", tempfile.gettempdir(), os.path.expanduser("~")):
        try:
            with tempfile.TemporaryFile(dir=place) as fh:
                times = []
                for _ in range(9):
                    t = time.perf_counter()
                    os.pwrite(fh.fileno(), b"x" * RECORD, 0)
                    os.fsync(fh.fileno())
                    times.append(time.perf_counter() - t)
        except OSError:
            continue
        if statistics.median(times) > best_s:
            best, best_s = place, statistics.median(times)
    if best is None or best_s < 40e-6:
        raise RuntimeError("no disk to keep the journal on")
    return tempfile.mkdtemp(prefix="index-", dir=best)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)

    width, rows, length = 1536, 62 + 2 * (seed % 3), 256
    with torch.device("cuda"):
        embed = nn.Embedding(32000, width).to(torch.bfloat16)
        blocks = nn.ModuleList(Block(width, 12) for _ in range(16)).to(torch.bfloat16)
        docs = [torch.randint(32000, (rows, length)) for _ in range(8)]

    def encode(i):
        x = embed(docs[i % 8])
        for block in blocks:
            x = block(x)
        return F.normalize(x.float().mean(1), dim=-1).half().cpu()

    times = []
    for i in range(26):
        t = time.perf_counter()
        encode(i)
        times.append(time.perf_counter() - t)
    batch_s = statistics.median(times[16:])
    commit_s = batch_s * share / (1 - share)

    folder = pick_folder()
    writer = None
    try:
        journal = Journal(folder)
        filler = os.urandom(RECORD)
        credit = 0.0

        def records(vectors):
            """Vectors of this batch, padded to whole records; as many as the shard plan says."""
            nonlocal credit
            head = vectors.numpy().tobytes()[:RECORD]
            credit += commit_s / journal.latency()
            count = int(credit)
            credit -= count
            return head + filler[len(head):], count

        # disk speed with the GPU batches in between
        for _ in range(4):
            journal.commit(filler)
        journal.recent.clear()
        for i in range(16):
            encode(i)
            spent = 0.0
            while spent < commit_s:
                spent += journal.commit(filler)

        work = queue.Queue(maxsize=8)
        failed = []

        def write_behind():
            try:
                while True:
                    job = work.get()
                    if job is None:
                        return
                    record, count = job
                    for _ in range(count):
                        journal.commit(record)
            except Exception as err:
                failed.append(err)

        if mode == "healthy":
            writer = threading.Thread(target=write_behind, name="journal", daemon=True)
            writer.start()

        steps = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            vectors = encode(steps)
            record, count = records(vectors)
            if writer is not None:
                work.put((record, count))
            else:
                for _ in range(count):
                    journal.commit(record)  # ALT
            steps += 1
            if failed:
                raise failed[0]
        elapsed = time.perf_counter() - start
        if writer is not None:
            work.put(None)
            writer.join(timeout=5)
        journal.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * batch_s, "commits": journal.next,
                      "commit_ms": 1e3 * journal.latency()}))


if __name__ == "__main__":
    main()
