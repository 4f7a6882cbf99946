"""Train a small language model; a reporter thread summarises the training metrics now and then."""
import collections, json, random, sys, threading, time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["gil-wait"],
    "culprit": "thread",
    "line": "# FAULT",
    "compound": False,
}
FIELDS = ("loss", "lr", "tokens", "grad", "time", "mem", "scale", "epoch")


class Reporter(threading.Thread):
    """Histograms of the last `window` rows, rebuilt every `period` seconds."""

    def __init__(self, window, period, seed):
        super().__init__(name="reporter", daemon=True)
        rng = random.Random(seed)
        self.rows = collections.deque(maxlen=window)
        for _ in range(window):  # rows restored from the previous run
            self.rows.append({k: rng.random() for k in FIELDS})
        self.period, self.stopping, self.summary = period, threading.Event(), {}

    def add(self, **row):
        self.rows.append(row)

    @staticmethod
    def summarise(rows):
        hist = {k: [0] * 33 for k in FIELDS}
        for row in rows:
            for key, value in row.items():
                hist[key][min(32, int(value * 32))] += 1  # FAULT
        return {k: max(range(33), key=h.__getitem__) / 32 for k, h in hist.items()}

    def run(self):
        while not self.stopping.wait(self.period):
            self.summary = self.summarise(list(self.rows))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, vocab=16384, d=1024, layers=12):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab, bias=False)
        self.blocks = nn.ModuleList(Block(d, 16) for _ in range(layers))

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def rows_per_second():
    rows = [{k: 0.3 for k in FIELDS} for _ in range(4000)]
    best = 0.0
    for _ in range(5):
        t0 = time.perf_counter()
        Reporter.summarise(rows)
        best = max(best, len(rows) / (time.perf_counter() - t0))
    return best


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    batch, seq = 16 + seed % 4, 512
    burst, period = (0.080, 0.040) if strength == "strong" else (0.040, 0.240)
    window = 128 if mode == "healthy" else int(rows_per_second() * burst)
    model = LM().to("cuda", torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    corpus = torch.randint(0, 16384, (64, batch, seq + 1), device="cuda")

    def step(i):
        ids = corpus[i % 64]
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    for i in range(8):
        step(i)
    reporter = Reporter(window, period, seed)
    reporter.start()
    steps, end = 0, time.time() + seconds
    while time.time() < end:
        t0 = time.time()
        loss = step(steps)
        reporter.add(loss=min(1.0, loss / 16) if loss == loss else 1.0, lr=1e-4, tokens=0.5, grad=0.1, time=time.time() - t0,
                     mem=0.2, scale=1.0, epoch=0.0)
        steps += 1
    reporter.stopping.set()
    reporter.join()
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
