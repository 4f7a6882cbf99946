"""Trains a time-delay network that tags speech frames with phones and reports the phone error rate of
the running batch next to the loss."""
import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["host-compute"], "culprit": "self", "line": "# FAULT", "compound": False}

MELS, FRAMES, PHONES, WIDTH, DEPTH = 80, 48, 42, 1536, 12


def edit_distance(spoken, written):
    row = list(range(len(written) + 1))
    for i, left in enumerate(spoken, 1):
        corner, row[0] = row[0], i
        for j, right in enumerate(written, 1):  # ALT
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (left != right))  # FAULT
    return row[-1]


class ErrorRate:
    """Phone error rate over the first utterances of a batch, smoothed over batches."""

    def __init__(self, utterances):
        self.utterances, self.value = utterances, 1.0

    def update(self, guesses, references):
        wrong = 0
        for guess, reference in zip(guesses[:self.utterances].tolist(), references):
            wrong += edit_distance(guess, reference)  # ALT
        self.value = 0.95 * self.value + 0.05 * wrong / (self.utterances * FRAMES)


class Delay(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.norm = nn.Linear(3 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        near = torch.cat([x.roll(1, 1), x, x.roll(-1, 1)], dim=-1)
        return x + F.gelu(self.norm(self.mix(near)))


class Speech:
    """A small corpus that stays on the device; the references are kept as lists for scoring."""

    def __init__(self, utterances, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, PHONES, (4, utterances, FRAMES))
        self.references = labels.tolist()
        self.labels = torch.from_numpy(labels).cuda()
        self.mels = torch.randn(4, utterances, FRAMES, MELS, device="cuda", dtype=torch.bfloat16)


class Tagger:
    def __init__(self, corpus, utterances):
        self.corpus = corpus
        with torch.device("cuda"):
            self.net = nn.Sequential(nn.Linear(MELS, WIDTH), *[Delay() for _ in range(DEPTH)],
                                     nn.Linear(WIDTH, PHONES)).to(torch.bfloat16)
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=2e-4, fused=True)
        self.slots = [torch.empty(utterances, FRAMES, dtype=torch.uint8).pin_memory() for _ in range(2)]
        self.events = [torch.cuda.Event(), torch.cuda.Event()]

    def launch(self, step):
        part, slot = step % 4, step % 2
        logits = self.net(self.corpus.mels[part])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), self.corpus.labels[part].flatten())
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        self.slots[slot].copy_(logits.detach().argmax(-1).to(torch.uint8), non_blocking=True)
        self.events[slot].record()

    def wait(self, step):
        self.events[step % 2].synchronize()

    def result(self, step):
        return self.slots[step % 2].numpy(), self.corpus.references[step % 4]


def train(tagger, rate, seconds, behind):
    """behind: score a batch while the device works on the one after it."""
    step, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        tagger.launch(step)
        if behind and step:
            rate.update(*tagger.result(step - 1))
        tagger.wait(step)
        if not behind:
            rate.update(*tagger.result(step))  # ALT
        step += 1
        if step % 50 == 0:
            print(f"step {step}: phone error rate {rate.value:.3f}", file=sys.stderr)
    return step


def calibrate(tagger, share):
    spent = []
    for step in range(12):
        began = time.perf_counter()
        tagger.launch(step)
        tagger.wait(step)
        spent.append(time.perf_counter() - began)
    took, trial, scored = statistics.median(spent[4:]), ErrorRate(8), []
    for _ in range(3):
        began = time.perf_counter()
        trial.update(*tagger.result(11))
        scored.append(time.perf_counter() - began)
    each = statistics.median(scored) / trial.utterances
    utterances = max(1, round(took * share / (1 - share) / each))
    print(f"step {took * 1e3:.1f} ms, scoring {utterances} utterances", file=sys.stderr)
    return utterances


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    utterances = 640 + 32 * (seed % 4)
    tagger = Tagger(Speech(utterances, seed), utterances)
    scored = min(utterances, calibrate(tagger, 0.41 if strength == "strong" else 0.10))
    steps = train(tagger, ErrorRate(scored), seconds, behind=mode == "healthy")
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
