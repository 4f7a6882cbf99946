"""Beam decoding engine. Beams finish and join, so the number of rows changes while it runs."""
import json
import sys
import time

import torch
import torch.nn.functional as F

TRUTH = {"cause": ["graph-recapture"], "culprit": "self", "line": "# FAULT"}

WIDTH, INNER, LAYERS, VOCAB, MAX_ROWS = 4096, 8192, 16, 8192, 1024


class Decoder:
    def __init__(self, seed, pad_to_bucket):
        gen = torch.Generator(device="cuda").manual_seed(seed)

        def weight(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=gen) * 0.02

        self.embedding = weight(VOCAB, WIDTH)
        self.layers = [(weight(WIDTH, INNER), weight(INNER, WIDTH)) for _ in range(LAYERS)]
        self.head = weight(WIDTH, VOCAB)
        self.tokens = torch.randint(0, VOCAB, (MAX_ROWS,), device="cuda", generator=gen)
        self.buckets = {}
        self.current, self.current_rows = None, -1
        self.forward(MAX_ROWS)                                  # load kernels, size workspaces
        torch.cuda.synchronize()
        if pad_to_bucket:
            self.buckets = {rows: self.capture(rows) for rows in (256, 512, 768, 1024)}

    @torch.no_grad()
    def forward(self, rows):
        x = F.embedding(self.tokens[:rows], self.embedding)
        for up, down in self.layers:
            x = x + F.gelu(F.rms_norm(x, (WIDTH,)) @ up) @ down
        self.tokens[:rows].copy_((x @ self.head).argmax(-1))

    def capture(self, rows):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # FAULT
            self.forward(rows)
        return graph

    def graph_for(self, rows):
        if self.buckets:
            return self.buckets[-(-rows // 256) * 256]
        if rows != self.current_rows:
            self.current, self.current_rows = self.capture(rows), rows
        return self.current

    def step(self, rows):
        self.graph_for(rows).replay()
        return self.tokens[:rows].tolist()                      # the scheduler looks for end tokens


class Scheduler:
    """Decides how many rows the next step has: some beams leave, some join, every few steps."""

    def __init__(self, seed, change_every):
        self.change_every, self.offset, self.n = change_every, seed % 17, 0

    def rows(self):
        self.n += 1
        change = self.n // self.change_every
        return MAX_ROWS - (7 * change + self.offset) % 61


def main(argv):
    healthy, seconds, seed = argv[1] == "healthy", float(argv[2]), int(argv[3])
    share = 0.11 if argv[4:5] == ["weak"] else 1.0
    decoder = Decoder(seed, pad_to_bucket=healthy)
    for _ in range(5):
        decoder.step(MAX_ROWS)

    change_every = 3
    if not healthy:
        start = time.perf_counter()
        for _ in range(20):
            decoder.step(MAX_ROWS)
        step_s = (time.perf_counter() - start) / 20
        start = time.perf_counter()
        for rows in (900, 901, 902):
            decoder.step(rows)
        capture_s = (time.perf_counter() - start) / 3 - step_s
        change_every = max(1, round(capture_s / (share * step_s)))

    scheduler = Scheduler(seed, change_every)
    steps, finished, end = 0, 0, time.time() + seconds
    while time.time() < end:
        finished += decoder.step(scheduler.rows()).count(0)
        steps += 1
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main(sys.argv)
