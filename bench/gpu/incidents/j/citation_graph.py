"""Train a GraphSAGE-like network on a citation graph: paper features stay in host memory, part after part visits the GPU."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["pageable-copy"],
    "culprit": "self",
    "line": "# FAULT",
    "compound": False,
}
PAPERS, FEATURES, NEIGHBOURS, FIELDS, PARTS = 262144, 128, 8, 32, 4


def host_features(pinned):
    """One table of features per part of the graph."""
    base = torch.randn(PAPERS, FEATURES)
    parts = []
    for i in range(PARTS):
        part = torch.empty(PAPERS, FEATURES, pin_memory=pinned)
        torch.mul(base, 1.0 + 0.1 * i, out=part)
        parts.append(part)
    return parts


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2 * FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                    nn.Linear(width, FIELDS))

    def forward(self, own, around):
        return self.layers(torch.cat([own, around.mean(1)], dim=1).bfloat16())


class Trainer:
    def __init__(self, seeds):
        self.seeds, self.net = seeds, Net(2048).to("cuda", torch.bfloat16)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-4, fused=True)
        self.links = torch.randint(0, PAPERS, (PAPERS, NEIGHBOURS), device="cuda")
        self.fields = torch.randint(0, FIELDS, (PAPERS,), device="cuda")
        self.total = torch.zeros((), device="cuda")

    def update(self, feats):
        seeds = torch.randint(0, PAPERS, (self.seeds,), device="cuda")
        logits = self.net(feats[seeds], feats[self.links[seeds]])
        loss = F.cross_entropy(logits.float(), self.fields[seeds])
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.total.add_(loss.detach())


class Visits:
    """Two tables on the GPU: a copy stream fills one while the network is trained on the other."""

    def __init__(self, parts):
        self.parts, self.stream, self.n = parts, torch.cuda.Stream(), 0
        self.tables = [torch.empty(PAPERS, FEATURES, device="cuda") for _ in range(2)]
        self.full = [torch.cuda.Event() for _ in range(2)]
        self.idle = [torch.cuda.Event() for _ in range(2)]
        self.fill()

    def fill(self):
        k = self.n % 2
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.idle[k])
            self.tables[k].copy_(self.parts[self.n % PARTS], non_blocking=True)
            self.full[k].record()
        self.n += 1

    def take(self):
        """The table of the next part; the one before is free for the part after it."""
        k = (self.n - 1) % 2
        self.idle[1 - k].record()
        self.fill()
        torch.cuda.current_stream().wait_event(self.full[k])
        return self.tables[k]


def plain_copy_time(part):
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        part.to("cuda")
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t0)
    return sorted(times)[2]


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    parts = host_features(pinned=mode != "fault")
    trainer = Trainer(65536 + 4096 * (seed % 3))
    feats = parts[0].to("cuda")
    for i in range(40):  # warm-up and the time of an update
        if i == 15:
            torch.cuda.synchronize()
            t0 = time.perf_counter()
        trainer.update(feats)
    torch.cuda.synchronize()
    update_time = (time.perf_counter() - t0) / 25
    plain = parts[0] if mode == "fault" else torch.empty(PAPERS, FEATURES).copy_(parts[0])
    share = 0.45 if strength == "strong" else 0.1
    updates = max(1, round(plain_copy_time(plain) * (1.0 - share) / share / update_time))
    del feats, plain
    visits = None if mode == "fault" else Visits(parts)

    def visit(i):
        if visits is None:
            table = parts[i % PARTS].to("cuda")  # FAULT
        else:
            table = visits.take()
        for _ in range(updates):
            trainer.update(table)

    for i in range(2):
        visit(i)
    torch.cuda.synchronize()

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        visit(steps)
        steps += 1
        if steps % 50 == 0:
            print("visits", steps, "mean loss", float(trainer.total) / (steps * updates), file=sys.stderr)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
