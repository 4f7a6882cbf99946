"""Train a click model on user histories kept in a SQLite feature store; learned profiles go back into the store."""
import json, os, shutil, sqlite3, sys, tempfile, time, zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": [["host-compute"], ["io-wait"]],
    "culprit": ["self", "self"],
    "line": ["# FAULT 1", "# FAULT 2"],
    "compound": True,
}
BITS, WIDTH, SHARDS = 19, 16, 24
MASK = (1 << BITS) - 1


class FeatureStore:
    def __init__(self, path, durable):
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA page_size=16384")
        self.db.execute("PRAGMA journal_mode=DELETE")
        self.db.execute("PRAGMA synchronous=" + ("FULL" if durable else "OFF"))
        self.db.execute("CREATE TABLE history (shard INTEGER PRIMARY KEY, data BLOB)")
        self.db.execute("CREATE TABLE profile (user INTEGER PRIMARY KEY, data BLOB)")
        self.waiting = []

    def fill(self, rng, rows):
        self.db.execute("BEGIN")
        for shard in range(SHARDS):
            data = rng.integers(0, 2**32, (rows, WIDTH), dtype=np.uint32).tobytes()
            self.db.execute("INSERT INTO history VALUES (?, ?)", (shard, data))
        self.db.execute("COMMIT")

    def shard(self, i):
        (data,) = self.db.execute("SELECT data FROM history WHERE shard=?", (i % SHARDS,)).fetchone()
        return np.frombuffer(data, dtype=np.uint32).reshape(-1, WIDTH)

    def save(self, user, data):
        self.db.execute("INSERT OR REPLACE INTO profile VALUES (?, ?)", (user % 4000, data))  # FAULT 2

    def save_later(self, user, data):
        self.waiting.append((user % 4000, data))
        if len(self.waiting) >= 200:
            self.db.execute("BEGIN")
            self.db.executemany("INSERT OR REPLACE INTO profile VALUES (?, ?)", self.waiting)
            self.db.execute("COMMIT")
            self.waiting.clear()


def hash_features(raw, by_hand):
    """Feature ids of a batch; the first `by_hand` rows go through the reference (string) hash."""
    ids = ((raw * np.uint32(2654435761)) >> np.uint32(32 - BITS)).astype(np.int32)
    for r in range(by_hand):
        ids[r] = [zlib.crc32(("f%d=%d" % (c, v)).encode()) & MASK for c, v in enumerate(raw[r].tolist())]  # FAULT 1
    return ids


class ClickModel(nn.Module):
    def __init__(self, hidden=8192):
        super().__init__()
        self.emb = nn.Embedding(1 << BITS, 64)
        self.mlp = nn.Sequential(nn.Linear(WIDTH * 64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, ids):
        return self.mlp(self.emb(ids).flatten(1)).squeeze(1)


def per_call(fn, n):
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    return (time.perf_counter() - t0) / n


def run(mode, seconds, seed, strength, path):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    rows = 14336 + 1024 * (seed % 3)
    store = FeatureStore(path, durable=mode == "fault")
    store.fill(rng, rows)
    model = ClickModel().to("cuda", torch.bfloat16)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    stage = torch.empty(rows, WIDTH, dtype=torch.int32, pin_memory=True)
    labels = (torch.rand(rows, device="cuda") < 0.1).float()
    profile = rng.bytes(16384)

    def train(raw, by_hand):
        stage.copy_(torch.from_numpy(hash_features(raw, by_hand)))
        loss = F.binary_cross_entropy_with_logits(model(stage.to("cuda", non_blocking=True)).float(), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    raw = store.shard(0)
    step_s = [per_call(lambda i: train(raw, 0).item(), 15) for _ in range(2)][1]
    by_hand, save_budget, save_s = 0, 0.0, 1.0
    if mode == "fault":  # size both parts relative to the step of this machine
        part = step_s * (0.6 if strength == "strong" else 0.06)
        by_hand = min(rows, max(1, int(part / per_call(lambda i: hash_features(raw[:200], 200), 5) * 200)))
        save_s, save_budget = per_call(lambda i: store.save(i, profile), 12), part

    steps, saved, debt, end = 0, 0, 0.0, time.time() + seconds
    while time.time() < end:
        loss = train(raw, by_hand)
        raw = store.shard(steps + 1)
        value = loss.item()
        if mode == "fault":
            debt += save_budget
            while debt >= save_s:
                store.save(saved, profile)
                saved, debt = saved + 1, debt - save_s
        else:
            store.save_later(steps, profile)
        steps += 1
        if steps % 200 == 0:
            print("step", steps, "loss", round(value, 4), file=sys.stderr)
    store.db.close()
    return steps


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="recsys-", dir="/var/tmp" if os.path.isdir("/var/tmp") else None)
    try:
        n = run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), (sys.argv + ["strong"])[4], folder + "/features.db")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": n}))
