"""Film captioning: six loader processes unpack footage, a transformer learns which words describe it."""
import json
import sys
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["input-starved"], "culprit": ["child:pt_data_worker", "child:python"],
         "line": "# FAULT", "alt_line": "# ALT"}

WORKERS, PREFETCH, FILM_EVERY = 6, 2, 16
CLIPS, BATCH, FRAMES, BANDS, WORDS = 512, 64, 192, 64, 4000


class Footage(Dataset):
    """One item is one batch; `parts` says how many archive parts each batch of a cycle is made from."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.seed, self.parts = seed, [1] * FILM_EVERY
        self.features = rng.standard_normal((CLIPS, FRAMES, BANDS), dtype=np.float32).astype(np.float16)
        self.words = (rng.random((CLIPS, WORDS), dtype=np.float32) > 0.99).astype(np.float16)
        steps = rng.integers(-3, 4, (8, 1 << 20), dtype=np.int8)
        self.archive = [zlib.compress(row.cumsum(dtype=np.int8).tobytes(), 1) for row in steps]

    def __len__(self):
        return 10_000_000

    def unpack(self, number, count):
        motion = np.zeros(FRAMES, np.float32)
        for part in range(count):
            frames = zlib.decompress(self.archive[(number + part) % len(self.archive)])  # ALT
            motion += np.frombuffer(frames, np.int8, FRAMES, 4096 * (part % 200))
        return motion / (64.0 * count)

    def __getitem__(self, number):
        rng = np.random.default_rng((self.seed, number))
        clips = rng.integers(0, CLIPS, BATCH)
        features = self.features[clips]
        features[:, :, 0] += self.unpack(number, self.parts[number % FILM_EVERY]).astype(np.float16)
        return torch.from_numpy(features), torch.from_numpy(self.words[clips])


class Captioner(nn.Module):
    def __init__(self, width=1024, depth=12):
        super().__init__()
        self.stem = nn.Linear(BANDS, width)
        block = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, features):
        return self.head(self.blocks(self.stem(features)).mean(1))


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = Captioner().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20000)

    def loss(self, features, words):
        features = features.to("cuda", non_blocking=True)
        words = words.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            scores = self.model(features)
        return F.binary_cross_entropy_with_logits(scores.float(), words.float())

    def step(self, features, words):
        loss = self.loss(features, words)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, held_out):
        return self.loss(*held_out).item()


def seconds_each(count, action):
    begin = time.perf_counter()
    for number in range(count):
        action(number)
    return (time.perf_counter() - begin) / count


def plan_parts(footage, step_s, ratio, films_whole):
    footage.unpack(0, 8)
    part_s = seconds_each(6, lambda number: footage.unpack(number, 8)) / 8
    film = max(2, round((WORKERS * PREFETCH + FILM_EVERY * ratio) * step_s / part_s))
    if films_whole:
        return [1] * (FILM_EVERY - 1) + [film]
    return [-(-film // FILM_EVERY)] * FILM_EVERY


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    ratio = 0.1 if sys.argv[4:5] == ["weak"] else 0.8
    footage, trainer = Footage(seed), Trainer(seed)
    held_out = [part.pin_memory() for part in footage[5]]
    seconds_each(8, lambda _: trainer.step(*held_out))
    step_s = seconds_each(15, lambda _: trainer.step(*held_out))
    footage.parts = plan_parts(footage, step_s, ratio, films_whole=mode == "fault")

    loader = DataLoader(footage, batch_size=None, num_workers=WORKERS, prefetch_factor=PREFETCH,
                        pin_memory=True, multiprocessing_context="fork")
    batches = iter(loader)
    for _ in range(3):
        trainer.step(*next(batches))
    steps, recent, end = 0, [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        features, words = next(batches)  # FAULT
        recent.append(trainer.step(features, words))
        steps += 1
        if steps % 100 == 0:
            print(f"step {steps} loss {sum(recent) / len(recent):.4f} "
                  f"held out {trainer.evaluate(held_out):.4f}", flush=True)
            recent.clear()
    del batches, loader
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
