"""Writes short stories in batches: prompt pass, then one token at a time from a key/value cache."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TRUTH = {"cause": ["sync-storm"], "culprit": "self", "line": "# FAULT"}

BATCH, WIDTH, HEADS, LAYERS, VOCAB, ROOM, PROMPT, STOP = 64, 4096, 32, 8, 32000, 896, 384, 2


class Layer:
    def __init__(self):
        def matrix(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / rows ** 0.5
        self.qkv, self.out = matrix(WIDTH, 3 * WIDTH), matrix(WIDTH, WIDTH)
        self.up, self.down = matrix(WIDTH, 4 * WIDTH), matrix(4 * WIDTH, WIDTH)
        shape = (BATCH, HEADS, ROOM, WIDTH // HEADS)
        self.keys = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros(shape, device="cuda", dtype=torch.bfloat16)

    def __call__(self, x, start):
        count = x.shape[1]
        end = start + count
        qkv = (F.rms_norm(x, (WIDTH,)) @ self.qkv).view(BATCH, count, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        self.keys[:, :, start:end] = k
        self.values[:, :, start:end] = v
        mixed = F.scaled_dot_product_attention(q, self.keys[:, :, :end], self.values[:, :, :end],
                                               is_causal=count > 1)
        x = x + mixed.transpose(1, 2).reshape(BATCH, count, WIDTH) @ self.out
        return x + F.silu(F.rms_norm(x, (WIDTH,)) @ self.up) @ self.down


class StoryWriter:
    def __init__(self, seed, temperature=0.8):
        torch.manual_seed(seed)
        self.temperature = temperature
        self.embedding = torch.randn(VOCAB, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.text = torch.zeros(BATCH, ROOM, dtype=torch.long, device="cuda")
        self.watched, self.tokens = [], 0

    def pick(self, x):
        logits = (F.rms_norm(x[:, -1], (WIDTH,)) @ self.embedding.T).float() / self.temperature
        race = torch.empty_like(logits).exponential_()
        return (logits.softmax(-1) / race).argmax(-1)

    def forward(self, words, start):
        x = self.embedding[words]
        for layer in self.layers:
            x = layer(x, start)
        return self.pick(x)

    def begin_story(self):
        self.alive = torch.ones(BATCH, dtype=torch.bool, device="cuda")
        self.stopped = set()
        self.text[:, :PROMPT].random_(3, VOCAB)
        return self.forward(self.text[:, :PROMPT], 0)

    def all_stopped(self, at):
        if not self.watched:
            self.alive &= self.text[:, at] != STOP
            return at % 128 == 0 and not self.alive.any().item()
        for row, back in self.watched:
            if self.text[row, at - back].item() == STOP:  # FAULT
                self.stopped.add(row)
        return len(self.stopped) == BATCH

    def write(self, length, end=float("inf")):
        word = self.begin_story()
        for at in range(PROMPT, PROMPT + length):
            self.text[:, at] = word
            self.tokens += 1
            if self.all_stopped(at) or time.perf_counter() >= end:
                break
            word = self.forward(word.unsqueeze(1), at)
        return self.text[0, PROMPT:at + 1]


def time_of(action):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def rows_to_watch(writer, share):
    token_s = (time_of(lambda: writer.write(220)) - time_of(lambda: writer.write(20))) / 200
    writer.watched = [(n % BATCH, n // BATCH) for n in range(256)]
    writer.all_stopped(PROMPT + 8)
    check_s = time_of(lambda: writer.all_stopped(PROMPT + 8)) / 256
    count = min(4 * BATCH, max(1, round(share * token_s / check_s)))
    return [(n % BATCH, n // BATCH) for n in range(count)]


@torch.inference_mode()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.1 if sys.argv[4:5] == ["weak"] else 0.8
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        writer = StoryWriter(seed)
        writer.write(40)
        if mode == "fault":
            writer.watched = rows_to_watch(writer, share)
        writer.tokens, stories = 0, 0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            last = writer.write(ROOM - PROMPT, end)
            stories += 1
            print(f"batch {stories}: {len(last)} words, the last is {last[-1].item()}", flush=True)
        torch.cuda.synchronize()
    print(json.dumps({"steps": writer.tokens}))


main()
