"""Trains a BERT that assigns diagnosis codes to doctors' letters and follows how many codes it finds."""
import json
import random
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

TRUTH = {"cause": [["host-compute"], ["sync-storm"]], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

VOCAB, LENGTH, BATCH, CODES, LETTERS = 4096, 512, 32, 512, 96
ALPHABET = "aeinrstldoumcghpbkfzvwy"


class BytePairs:
    """Joins the letters of a word in the order of learnt merges."""

    def __init__(self, rng):
        self.words = ["".join(rng.choices(ALPHABET, k=rng.randint(4, 14))) for _ in range(3000)]
        pairs = sorted({word[n:n + 2] for word in self.words for n in range(len(word) - 1)})
        rng.shuffle(pairs)
        self.rank = {(pair[0], pair[1]): n for n, pair in enumerate(pairs[:300])}
        self.ids = {}

    def split(self, word):
        parts = list(word)
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda n: self.rank.get((parts[n], parts[n + 1]), 9999))  # FAULT
            if (parts[best], parts[best + 1]) not in self.rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return parts

    def encode(self, letter):
        ids = []
        for word in letter.split():
            for part in self.split(word):  # ALT
                ids.append(self.ids.setdefault(part, len(self.ids) % VOCAB))
        return np.resize(np.array(ids), LENGTH)


class Coder:
    def __init__(self, seed):
        torch.manual_seed(seed)
        config = BertConfig(vocab_size=VOCAB, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16,
                            intermediate_size=4096, max_position_embeddings=LENGTH, num_labels=CODES,
                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                            problem_type="multi_label_classification")
        with torch.device("cuda"):
            self.model = BertForSequenceClassification(config).to(torch.bfloat16).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True)
        self.labels = (torch.rand(BATCH, CODES, device="cuda") < 0.02).to(torch.bfloat16)

    def step(self, ids):
        output = self.model(input_ids=ids, labels=self.labels)
        output.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.sigmoid(output.logits.detach().float())

    def found_one_by_one(self, chances, frequent):
        found = 0
        for row in range(BATCH):
            for code in range(frequent):
                if chances[row, code].item() > 0.5:  # FAULT
                    found += 1
        return found

    def found(self, chances, frequent):
        return (chances[:, :frequent] > 0.5).sum()


def timed(function, times):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.055 if sys.argv[4:5] == ["weak"] else 0.5         # of a step, for either fault
    rng, coder = random.Random(seed), Coder(seed)
    pairs = BytePairs(rng)
    ids = torch.randint(VOCAB, (BATCH, LENGTH), device="cuda")
    timed(lambda: coder.step(ids), 4)
    step_s = timed(lambda: coder.step(ids), 10)
    chances = coder.step(ids)
    coder.found_one_by_one(chances, 4)
    item_s = timed(lambda: coder.found_one_by_one(chances, 16), 2) / (16 * BATCH)
    frequent = min(CODES, max(1, round(share * step_s / (item_s * BATCH))))
    text = " ".join(rng.choices(pairs.words, k=3000))
    word_s = timed(lambda: pairs.encode(text), 2) / 3000
    length = max(2, round(share * step_s / (word_s * BATCH)))
    letters = [" ".join(rng.choices(pairs.words, k=length)) for _ in range(LETTERS)]
    encoded = torch.from_numpy(np.stack([pairs.encode(letter) for letter in letters])).cuda()
    steps, total, end = 0, torch.zeros((), device="cuda"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        chosen = rng.sample(range(LETTERS), BATCH)
        if mode == "fault":
            ids = torch.from_numpy(np.stack([pairs.encode(letters[n]) for n in chosen])).cuda()  # ALT
            total += coder.found_one_by_one(coder.step(ids), frequent)  # ALT
        else:
            first = rng.randrange(LETTERS - BATCH)
            total += coder.found(coder.step(encoded[first:first + BATCH]), frequent)
        steps += 1
        if steps % 10 == 0:
            print(f"step {steps} found {total.item():.0f}", flush=True)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


main()
