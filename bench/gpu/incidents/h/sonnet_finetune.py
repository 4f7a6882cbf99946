"""Finetune a small GPT on sonnets with batches of varying length (bf16, one GPU)."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["alloc-churn"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
VOCAB, WIDTH, HEADS, LAYERS = 8192, 1024, 8, 8
BATCH = 10 + SEED % 3
LENGTHS = [1024, 960, 832, 704]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, WIDTH // HEADS)  # ALT
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # ALT
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, WIDTH))  # ALT
        return x + self.down(F.gelu(self.up(self.ln2(x))))  # ALT


class SonnetLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, WIDTH)
        self.pos = nn.Embedding(1024, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids, targets):
        where = torch.arange(ids.shape[1], device=ids.device)
        x = self.tok(ids) + self.pos(where)  # ALT
        for block in self.blocks:
            x = block(x)  # ALT
        logits = self.head(self.ln(x))  # ALT
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))  # ALT


class Trainer:
    def __init__(self):
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            self.model = SonnetLM().to(torch.bfloat16)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        gen = torch.Generator().manual_seed(SEED)
        self.batches = []
        for i in range(16):
            n = LENGTHS[i % len(LENGTHS)]
            ids = torch.randint(0, VOCAB, (BATCH, n + 1), generator=gen)
            self.batches.append(ids.pin_memory())
        self.loss_sum = torch.zeros((), device="cuda")

    def step(self, i, tidy):
        ids = self.batches[i % len(self.batches)].to("cuda", non_blocking=True)  # ALT
        loss = self.model(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())  # ALT
        loss.backward()  # ALT
        self.opt.step()  # ALT
        self.opt.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()
        del loss, ids
        if tidy:
            # batches differ in length: give fragments back so that we never run out
            torch.cuda.empty_cache()  # FAULT


def timed(trainer, count, tidy):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(count):
        trainer.step(i, tidy)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def main():
    trainer = Trainer()
    for i in range(12):
        trainer.step(i, False)
    plain = timed(trainer, 16, False)
    timed(trainer, 1, True)
    churn = max(timed(trainer, 4, True) - plain, 1e-4)
    share = 0.42 if STRENGTH == "strong" else 0.11
    tidy_every = max(1, round(churn / plain * (1 - share) / share))
    for i in range(8):
        trainer.step(i, False)
    torch.cuda.synchronize()

    steps = 0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        steps += 1
        trainer.step(steps, MODE == "fault" and steps % tidy_every == 0)  # ALT
        if steps % 25 == 0:
            mean = trainer.loss_sum.item() / 25
            trainer.loss_sum.zero_()
            print(f"step {steps} loss {mean:.3f}", file=sys.stderr)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
