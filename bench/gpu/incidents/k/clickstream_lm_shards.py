"""Pre-trains a small GPT on clickstream events. The events are packed in deflated shards, which eight
loader workers divide among themselves."""
import json
import statistics
import sys
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import GPT2Config, GPT2LMHeadModel

TRUTH = {"cause": ["input-starved"], "culprit": "child", "line": "# FAULT", "compound": False}

EVENTS, LENGTH, WORKERS = 8192, 512, 8


class Shard:
    """A deflated run of sessions, read from its start to its end and then again."""

    def __init__(self, number, rows, seed):
        rng = np.random.default_rng((seed, number))
        sessions = np.minimum(rng.zipf(1.4, (rows, LENGTH)), EVENTS - 1).astype(np.int32)
        self.packed, self.rows, self.rng = zlib.compress(sessions.tobytes(), 1), rows, rng

    def sessions(self):
        flat = np.frombuffer(zlib.decompress(self.packed), dtype=np.int32)
        return flat.reshape(self.rows, LENGTH)[self.rng.permutation(self.rows)]


def sessionise(shard, until):
    """Unpack, order the sessions by their rarest event, and repeat for as long as merging takes."""
    batch = shard.sessions()
    while time.perf_counter() < until:
        rarity = np.sort(batch[:, :64], axis=1)[:, -8:].sum(axis=1)
        batch = batch[np.argsort(rarity, kind="stable")]
    return batch


class ShardStream(IterableDataset):
    def __init__(self, shards, work):
        self.shards, self.work = shards, work

    def __iter__(self):
        worker = get_worker_info()
        mine = self.shards[worker.id::worker.num_workers]
        if not mine:
            return
        number, began = 0, time.perf_counter()
        while True:
            batch = sessionise(mine[number % len(mine)], began + self.work)
            began = time.perf_counter()
            yield torch.from_numpy(np.ascontiguousarray(batch))
            began = max(began, time.perf_counter() - 0.002)
            number += 1


class Pretrainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=EVENTS, n_positions=LENGTH, n_embd=1024, n_layer=8, n_head=16,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
                            bos_token_id=0, eos_token_id=0)
        with torch.device("cuda"):
            self.model = GPT2LMHeadModel(config).to(torch.bfloat16).train()
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.previous = None

    def step(self, batch):
        events = batch.to("cuda", non_blocking=True).long()
        logits = self.model(input_ids=events).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), events[:, 1:].flatten())
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        reached = self.previous.item() if self.previous is not None else None
        self.previous = loss.detach()
        return reached


def calibrate(trainer, rows):
    batch = torch.randint(EVENTS, (rows, LENGTH), dtype=torch.int32).pin_memory()
    spent = []
    for _ in range(14):
        began = time.perf_counter()
        trainer.step(batch)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[5:])


def pretrain(trainer, loader, seconds):
    stream = iter(loader)
    trainer.step(next(stream))
    steps, until = 0, time.perf_counter() + seconds
    for batch in stream:  # FAULT
        loss = trainer.step(batch)
        steps += 1
        if steps % 40 == 0:
            print(f"step {steps}: loss {loss:.3f}", file=sys.stderr)
        if time.perf_counter() >= until:
            break
    torch.cuda.synchronize()
    return steps


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.40 if strength == "strong" else 0.10

    rows = 64 + 4 * (seed % 4)
    trainer = Pretrainer(seed)
    took = calibrate(trainer, rows)
    print(f"step {took * 1e3:.1f} ms", file=sys.stderr)

    count = 4 * WORKERS if mode == "healthy" else 1
    stream = ShardStream([Shard(number, rows, seed) for number in range(count)], took / (1 - share))
    loader = DataLoader(stream, batch_size=None, num_workers=WORKERS, prefetch_factor=2, pin_memory=True)
    steps = pretrain(trainer, loader, seconds)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
