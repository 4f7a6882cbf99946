# Acoustic wave field on a square grid with many small emitters (hydrophone study, notebook export).
import json
import random
import sys
import time

import torch

TRUTH = {"cause": ["launch-bound"], "culprit": "self", "line": "# FAULT"}

mode = sys.argv[1]
seconds = float(sys.argv[2])
seed = int(sys.argv[3])
weak = len(sys.argv) > 4 and sys.argv[4] == "weak"

random.seed(seed)
torch.manual_seed(seed)
N = 4096 + 64 * (seed % 4)
SUBSTEPS = 12

u = torch.zeros(N, N, device="cuda")            # pressure
v = torch.zeros(N, N, device="cuda")            # its time derivative
clock = torch.zeros((), device="cuda")


def laplacian(f):
    return (torch.roll(f, 1, 0) + torch.roll(f, -1, 0)
            + torch.roll(f, 1, 1) + torch.roll(f, -1, 1) - 4 * f)


def propagate(dt):
    for _ in range(SUBSTEPS):
        v.add_(laplacian(u), alpha=dt)
        v.mul_(0.9995)
        u.add_(v, alpha=dt)
    clock.add_(dt * SUBSTEPS)


def place_emitters(count):
    return [(random.randrange(0, N - 4), random.randrange(0, N - 4), random.random() * 6.28)
            for _ in range(count)]


def emit_each(emitters):
    for y, x, phase in emitters:
        u[y:y + 4, x:x + 4] += 0.01 * torch.sin(clock * 3.0 + phase)  # FAULT


def emit_all(cells, phases):
    u.view(-1).index_add_(0, cells, 0.01 * torch.sin(clock * 3.0 + phases))


def flatten(emitters):
    cells, phases = [], []
    for y, x, phase in emitters:
        for dy in range(4):
            for dx in range(4):
                cells.append((y + dy) * N + x + dx)
                phases.append(phase)
    return torch.tensor(cells, device="cuda"), torch.tensor(phases, device="cuda")


def stable_dt():
    """CFL-like limit: the louder the field, the smaller the step."""
    return min(0.2, 0.2 / (1e-3 + u.abs().max().item()))


def clocked(fn, n):
    torch.cuda.synchronize()
    t = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / n


some = place_emitters(50)
clocked(lambda: (emit_each(some), propagate(0.1), stable_dt()), 3)
field_s = clocked(lambda: (propagate(0.1), stable_dt()), 10)
emitter_s = clocked(lambda: emit_each(some), 5) / len(some)

emitters = place_emitters(max(4, int((0.14 if weak else 1.6) * field_s / emitter_s)))
cells, phases = flatten(emitters)
dt = stable_dt()
steps = 0
end = time.time() + seconds
while time.time() < end:
    if mode == "fault":
        emit_each(emitters)
    else:
        emit_all(cells, phases)
    propagate(dt)
    dt = stable_dt()
    steps += 1

print(json.dumps({"steps": steps}))
