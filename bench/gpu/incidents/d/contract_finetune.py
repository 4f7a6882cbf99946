"""Finetunes a GPT-2 style model on contracts: bfloat16, gradient accumulation, a thread that prepares batches."""
import json
import math
import queue
import random
import sys
import threading
import time

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "alt_line": "# ALT"}

VOCAB, CONTEXT, MICRO_BATCH, ACCUMULATE, DOCUMENTS = 8192, 512, 16, 4, 64
LETTERS = "etaoinshrdlucmwfgypb"


class WordPieces:
    def __init__(self, rng):
        self.words = ["".join(rng.choices(LETTERS, k=rng.randint(4, 12))) for _ in range(4000)]
        pieces = {word[:rng.randint(2, 4)] for word in self.words} | set(LETTERS)
        self.ids = {piece: number for number, piece in enumerate(sorted(pieces))}

    def encode(self, text):
        found = []
        for word in text.split():
            while word:
                size = next((n for n in range(len(word), 1, -1) if word[:n] in self.ids), 1)  # FAULT
                found.append(self.ids[word[:size]])
                word = word[size:]
        return np.resize(np.array(found), CONTEXT)


class Batches(threading.Thread):
    """Keeps a few micro-batches ready; documents are texts, or arrays when they were encoded before."""

    def __init__(self, documents, pieces, seed):
        super().__init__(name="batches", daemon=True)
        self.documents, self.pieces, self.rng = documents, pieces, random.Random(seed)
        self.ready, self.done = queue.Queue(4), threading.Event()

    def row(self):
        document = self.rng.choice(self.documents)
        return self.pieces.encode(document) if isinstance(document, str) else document

    def run(self):
        while not self.done.is_set():
            rows = np.stack([self.row() for _ in range(MICRO_BATCH)])
            self.ready.put(torch.from_numpy(rows).pin_memory())

    def close(self):
        self.done.set()
        while self.is_alive():
            while not self.ready.empty():
                self.ready.get()
            self.join(0.05)


class Finetuner:
    def __init__(self, seed):
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=1280, n_layer=12, n_head=20,
                            activation_function="relu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                            use_cache=False, bos_token_id=0, eos_token_id=0)
        with torch.device("cuda"):
            self.model = GPT2LMHeadModel(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-5, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / 50) * (0.55 + 0.45 * math.cos(step / 2000)))

    def micro_step(self, ids):
        ids = ids.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(input_ids=ids, labels=ids).loss  # ALT
        (loss / ACCUMULATE).backward()
        return loss.item()

    def step(self, take):
        total = 0.0
        for _ in range(ACCUMULATE):
            total += self.micro_step(take())
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total / ACCUMULATE


def words_per_document(tuner, pieces, rng, share):
    ids = torch.randint(VOCAB, (MICRO_BATCH, CONTEXT)).pin_memory()
    begin = time.perf_counter()
    for _ in range(5):
        tuner.step(lambda: ids)
    micro_s = (time.perf_counter() - begin) / (5 * ACCUMULATE)
    text = " ".join(rng.choices(pieces.words, k=20000))
    begin = time.perf_counter()
    pieces.encode(text)
    word_s = (time.perf_counter() - begin) / 20000
    return max(4, round(share * micro_s / (MICRO_BATCH * word_s)))


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.12 if sys.argv[4:5] == ["weak"] else 0.9
    rng, tuner = random.Random(seed), Finetuner(seed)
    pieces = WordPieces(rng)
    for _ in range(3):
        tuner.step(lambda: torch.randint(VOCAB, (MICRO_BATCH, CONTEXT)))
    count = words_per_document(tuner, pieces, rng, share)
    documents = [" ".join(rng.choices(pieces.words, k=count)) for _ in range(DOCUMENTS)]
    if mode == "healthy":
        documents = [pieces.encode(text) for text in documents]
    batches = Batches(documents, pieces, seed)
    batches.start()
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        loss = tuner.step(batches.ready.get)
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps} loss {loss:.3f} rate {tuner.schedule.get_last_lr()[0]:.2e}", flush=True)
    batches.close()
    print(json.dumps({"steps": steps}))


main()
