"""Fine-tunes a small GPT-2 on a text corpus; keeps a journal so that a killed job can resume."""
import json
import os
import random
import re
import sys
import tempfile
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

TRUTH = {"cause": [["host-compute"], ["io-wait"]], "culprit": ["self", "self"],
         "line": ["# FAULT 1", "# FAULT 2"], "compound": True}

WORD = re.compile(r"\w+|[^\w\s]")
MODE, SECONDS, SEED = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
SHARE = 0.08 if sys.argv[4:5] == ["weak"] else 0.6
FAULT = MODE == "fault"
BATCH, CONTEXT, VOCAB = 16, 512, 8192
random.seed(SEED)
torch.manual_seed(SEED)


def build_model():
    config = GPT2Config(n_layer=8 + SEED % 3, n_embd=1024, n_head=16, n_positions=CONTEXT,
                        vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, use_cache=False)
    model = GPT2LMHeadModel(config).to("cuda", dtype=torch.bfloat16)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def make_corpus(words_per_document, documents=200):
    lexicon = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 9)))
               for _ in range(VOCAB - 2)]
    vocab = {word: i + 2 for i, word in enumerate(lexicon)}
    return vocab, [" ".join(random.choices(lexicon, k=words_per_document)) for _ in range(documents)]


def encode(text, vocab):
    ids = [vocab.get(token, 1) for token in WORD.findall(text.lower())]  # FAULT 1
    return (ids * (CONTEXT // len(ids) + 1))[:CONTEXT]


def train_step(model, optimizer, ids):
    ids = ids.to("cuda", non_blocking=True)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def write_journal(journal, record, durable):
    journal.seek(0)
    journal.write(record)
    journal.flush()
    if durable:
        os.fsync(journal.fileno())  # FAULT 2


def per_call(fn, n):
    start = time.perf_counter()
    for _ in range(n):
        fn()
    return (time.perf_counter() - start) / n


def main():
    model, optimizer = build_model()
    ready = torch.randint(2, VOCAB, (64, BATCH, CONTEXT)).pin_memory()
    for i in range(5):
        train_step(model, optimizer, ready[i])
    step_s = per_call(lambda: train_step(model, optimizer, ready[0]), 10)

    vocab, corpus = make_corpus(2000, 8)
    word_s = per_call(lambda: encode(corpus[0], vocab), 20) / 2000
    vocab, corpus = make_corpus(max(100, int(SHARE * step_s / BATCH / word_s)))

    disk = "/var/tmp" if os.path.isdir("/var/tmp") else None       # /tmp may be in memory
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        journal = open(os.path.join(folder, "journal.bin"), "wb")
        record = os.urandom(256 << 10)
        commit_s = per_call(lambda: write_journal(journal, record, True), 10) if FAULT else 1.0
        groups = max(1, min(300, round(SHARE * step_s / commit_s)))   # parameter groups per step
        every = max(1, round(commit_s / (SHARE * step_s)))            # slow disks: not each step

        steps, total, end = 0, 0.0, time.time() + SECONDS
        while time.time() < end:
            if FAULT:
                ids = torch.tensor([encode(random.choice(corpus), vocab) for _ in range(BATCH)])
            else:
                ids = ready[steps % len(ready)]
            total += train_step(model, optimizer, ids)
            if FAULT and steps % every == 0:
                for _ in range(groups):
                    write_journal(journal, record, True)
            elif steps % 200 == 0:
                write_journal(journal, record, False)
            steps += 1
        journal.close()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
