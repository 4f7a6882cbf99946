"""Tag long documents: a transformer encoder with a linear-chain CRF on top.

usage: crf_tagger.py MODE SECONDS SEED [STRENGTH]
"""
import json
import math
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["launch-bound"], "culprit": "self", "line": "# FAULT", "compound": False}

DEV = "cuda"
DIM, HEADS, TAGS, VOCAB = 1024, 16, 9, 32000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tagger(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.emit = nn.Linear(DIM, TAGS)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.emit(x).float()


def build(depth):
    with torch.device(DEV):
        return Tagger(depth).to(torch.bfloat16).eval()


def best_path(em, lengths, words, trans):
    """Word by word: keep the best score of each tag, then walk back."""
    live = torch.arange(words, device=DEV) < lengths.unsqueeze(1)
    stay = torch.arange(TAGS, device=DEV).expand(em.size(0), TAGS)
    score, back = em[:, 0], []
    for t in range(1, words):  # ALT
        total = score.unsqueeze(2) + trans  # FAULT
        best, prev = total.max(dim=1)  # FAULT
        on = live[:, t].unsqueeze(1)  # FAULT
        score = torch.where(on, best + em[:, t], score)  # FAULT
        back.append(torch.where(on, prev, stay))  # FAULT
    tag = score.argmax(1, keepdim=True)
    path = [tag]
    for prev in reversed(back):  # ALT
        tag = prev.gather(1, tag)  # FAULT
        path.append(tag)  # FAULT
    return torch.cat(path[::-1], 1)


def prefix(m):
    """All prefixes of max-plus matrix products along dim 1, in log2(words) rounds."""
    gap = 1
    while gap < m.size(1):
        joined = (m[:, :-gap].unsqueeze(4) + m[:, gap:].unsqueeze(2)).amax(3)
        m = torch.cat([m[:, :gap], joined], 1)
        gap *= 2
    return m


def best_path_scan(em, lengths, words, trans):
    """The same tags from max-marginals, all words at once."""
    b, em = em.size(0), em[:, :words]
    live = (torch.arange(words, device=DEV) < lengths.unsqueeze(1)).view(b, words, 1, 1)
    m = trans + em.unsqueeze(2)
    m[:, 0] = em[:, 0].unsqueeze(1)
    unit = torch.full((TAGS, TAGS), -1e9, device=DEV).fill_diagonal_(0.0)
    m = torch.where(live, m, unit)
    alpha = prefix(m)[:, :, 0]
    tail = prefix(m.flip(1).transpose(2, 3)).amax(2).flip(1)
    beta = torch.cat([tail[:, 1:], tail.new_zeros(b, 1, TAGS)], 1)
    return (alpha + beta).argmax(-1)


def timed(fn, seconds):
    n, t0 = 0, time.perf_counter()
    while time.perf_counter() - t0 < seconds:
        fn()
        torch.cuda.synchronize()
        n += 1
    return (time.perf_counter() - t0) / n


@torch.no_grad()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.40 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.115
    rng = random.Random(seed)
    torch.manual_seed(seed)
    docs, tokens = 32, rng.choice([896, 960, 1024])

    ids = torch.randint(0, VOCAB, (docs, tokens), device=DEV)
    probe = build(3)
    timed(lambda: probe(ids), 0.3)
    depth = max(2, min(24, round(0.030 * 3 / timed(lambda: probe(ids), 0.3))))
    model = build(depth)
    del probe
    trans = torch.randn(TAGS, TAGS, device=DEV)
    timed(lambda: model(ids), 0.8)
    gpu_step = timed(lambda: model(ids), 0.8)

    # how many words to label, from the time one word takes
    em, trial = model(ids), 120
    lens = torch.full((docs,), trial, device=DEV)
    timed(lambda: best_path(em, lens, trial, trans), 0.3)
    word = timed(lambda: best_path(em, lens, trial, trans), 0.5) / trial
    tape = torch.cuda.CUDAGraph()
    with torch.cuda.graph(tape):
        best_path(em, lens, trial, trans)
    on_gpu = min(timed(tape.replay, 0.2) / trial, 0.5 * word)
    del tape
    total = share * gpu_step / max(word - on_gpu - share * word, 0.12 * word)
    shards = max(1, math.ceil(total / tokens))
    words = max(16, int(total / shards))

    batches = []
    for _ in range(8):
        size = torch.randint(words // 2, words + 1, (docs,))
        size[::4] = words
        batches.append((torch.randint(0, VOCAB, (docs, tokens)).pin_memory(), size.pin_memory()))
    decode = best_path if mode == "fault" else best_path_scan
    decode(em, lens, trial, trans)
    if mode != "fault":
        gpu_step = timed(lambda: decode(model(ids), lens.fill_(words), words, trans), 0.5)

    steps, counts = 0, torch.zeros(TAGS, dtype=torch.long)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        host_ids, host_len = batches[steps % len(batches)]
        ids = host_ids.to(DEV, non_blocking=True)
        lens = host_len.to(DEV, non_blocking=True)
        em = model(ids)
        longest = int(lens.max())
        if mode == "fault":
            for part_em, part_len in zip(em.chunk(shards), lens.chunk(shards)):
                tags = best_path(part_em, part_len, longest, trans)
        else:
            tags = best_path_scan(em, lens, longest, trans)
        counts += torch.bincount(tags[:, -1].cpu(), minlength=TAGS)
        steps += 1
    wall = time.perf_counter() - start
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / steps,
                      "gpu_step_ms": 1e3 * gpu_step, "depth": depth, "words": words,
                      "shards": shards, "word_us": 1e6 * word, "word_gpu_us": 1e6 * on_gpu}))


if __name__ == "__main__":
    main()
