# Score a language model's outputs offline: likelihood on the GPU, n-gram repetition on the host.
# (exported from a notebook)   score_generations.py MODE SECONDS SEED [STRENGTH]
# %%
import json
import statistics
import sys
import time
from collections import Counter

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["host-compute"], "culprit": "self", "line": "# FAULT", "compound": False}

mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
    raise SystemExit("bad arguments")
share = 0.42 if strength == "strong" else 0.11
pipelined = mode == "healthy"
torch.manual_seed(seed)
torch.set_grad_enabled(False)

VOCAB, WIDTH, HEADS, LENGTH = 8192, 2048, 16, 1024
ROWS = 15 + seed % 3


# %%
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


with torch.device("cuda"):
    embed = nn.Embedding(VOCAB, WIDTH).to(torch.bfloat16)
    blocks = nn.ModuleList(Block() for _ in range(9)).to(torch.bfloat16)
    head = nn.Linear(WIDTH, VOCAB, bias=False).to(torch.bfloat16)
    prompts = [torch.randint(VOCAB, (ROWS, LENGTH)) for _ in range(8)]

# results come back through two small pinned buffers
slots = [(torch.empty(ROWS, LENGTH, dtype=torch.int32).pin_memory(), torch.cuda.Event())
         for _ in range(2)]


def launch(i):
    ids = prompts[i % len(prompts)]
    x = embed(ids)
    for block in blocks:
        x = block(x)
    logits = head(x)
    host, done = slots[i % 2]
    host.copy_(logits.argmax(-1).to(torch.int32), non_blocking=True)
    done.record()
    return i


def fetch(i):
    host, done = slots[i % 2]
    done.synchronize()
    return host.tolist()


def repetition(rows, tables):
    """Repeated n-grams, orders 1, 2, 3, ... over the rows until `tables` tables are made."""
    repeated = 0
    for k in range(tables):
        row, n = rows[k % len(rows)], 1 + k // len(rows)
        grams = Counter(zip(*(row[j:] for j in range(n))))  # FAULT
        repeated += len(row) - n + 1 - len(grams)
    return repeated


# %% warm up, time a batch
times = []
for i in range(26):
    t = time.perf_counter()
    rows = fetch(launch(i))
    torch.cuda.synchronize()
    times.append(time.perf_counter() - t)
batch_s = statistics.median(times[16:])
stats_s = batch_s * share / (1 - share)

# %% how many n-gram tables fit the budget
tables = 32
for _ in range(4):
    times = []
    for i in range(5):
        rows = fetch(launch(i))
        t = time.perf_counter()
        repetition(rows, tables)
        times.append(time.perf_counter() - t)
    tables = max(1, round(tables * stats_s / statistics.median(times)))

# %% the job
total = 0
steps = 0
pending = launch(0)
if not pipelined:
    fetch(pending)
start = time.perf_counter()
while time.perf_counter() - start < seconds:
    if pipelined:
        # queue the next batch first, then look at the one before
        rows = fetch(pending)
        pending = launch(steps + 1)
    else:
        rows = fetch(launch(steps + 1))
    total += repetition(rows, tables)  # ALT
    steps += 1
torch.cuda.synchronize()
elapsed = time.perf_counter() - start

# %%
print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                  "gpu_step_ms": 1e3 * batch_s, "tables": tables, "repeated": total}))
