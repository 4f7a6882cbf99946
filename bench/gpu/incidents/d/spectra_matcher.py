"""Matches measured spectra against a reference library, as many at a time as fit on the GPU."""
import json
import sys
import time

import torch

TRUTH = {"cause": ["alloc-failed", "alloc-churn"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

LIBRARY, BINS, SLAB, SMALL = 400_000, 256, 131_072, 4096


class Matcher:
    """Takes a slab of spectra where memory allows and a small batch where it does not."""

    def __init__(self, seed):
        random = torch.Generator("cuda").manual_seed(seed)
        self.library = torch.randn(LIBRARY, BINS, device="cuda", generator=random)
        self.library /= self.library.norm(dim=1, keepdim=True)
        self.spectra = torch.randn(2 * SLAB, BINS, device="cuda", generator=random)
        self.matches = torch.zeros(2 * SLAB, dtype=torch.long, device="cuda")
        self.scores = torch.zeros(2 * SLAB, device="cuda")
        self.cursor, self.batches = 0, 0
        self.slabs_per_batch, self.due = 0.0, 0.0

    def similarities(self, rows):
        try:
            return torch.empty(rows, LIBRARY, device="cuda")  # FAULT
        except torch.cuda.OutOfMemoryError:
            pass
        return torch.empty(SMALL, LIBRARY, device="cuda")  # ALT

    def match(self):
        self.due += self.slabs_per_batch
        rows = SLAB if self.due >= 1.0 else SMALL
        self.due -= self.due >= 1.0
        table = self.similarities(rows)
        batch = slice(self.cursor, self.cursor + len(table))
        torch.mm(self.spectra[batch], self.library.T, out=table)
        best = table.max(1)
        self.matches[batch] = best.indices
        self.scores[batch] = best.values
        self.cursor = (self.cursor + len(table)) % SLAB
        self.batches += 1
        if self.batches % 100 == 0:
            sure = (self.scores[:SLAB] > 0.3 * BINS ** 0.5).float().mean().item()
            print(f"batch {self.batches}: {sure:.1%} sure matches", flush=True)

    def seconds_each(self, count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            self.match()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count


def report(matcher):
    used = torch.bincount(matcher.matches[:SLAB], minlength=LIBRARY)
    strongest = matcher.scores[:SLAB].topk(5)
    return {"references used": int((used > 0).sum()),
            "strongest": [round(value, 2) for value in strongest.values.tolist()]}


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 0.7
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("high")
    matcher = Matcher(seed)
    matcher.seconds_each(20)
    batch_s = matcher.seconds_each(60)
    if mode == "fault":
        matcher.slabs_per_batch = 1.0
        matcher.seconds_each(3)
        extra_s = max(1e-5, matcher.seconds_each(20) - batch_s)
        matcher.slabs_per_batch = min(1.0, share * batch_s / extra_s)
    first, end = matcher.batches, time.perf_counter() + seconds
    while time.perf_counter() < end:
        matcher.match()
    torch.cuda.synchronize()
    batches = matcher.batches - first
    print(json.dumps(report(matcher)))
    print(json.dumps({"steps": batches}))


main()
