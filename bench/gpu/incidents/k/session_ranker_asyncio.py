"""Ranks catalogue items for click sessions: an asyncio front end feeds pages of sessions to a GPU
transformer and keeps bootstrap estimates of item exposure for the merchandising report."""
import asyncio
import json
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}

CATALOGUE, WIDTH, DEPTH, HEADS, TOP = 40_000, 1024, 24, 16, 100


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.mid = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        packed = self.qkv(self.pre(x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.mid(x))))


class RankingService:
    def __init__(self, seed):
        torch.manual_seed(seed)
        rows = 480 + 16 * (seed % 5)
        self.pages = torch.randint(CATALOGUE, (8, rows, 64), device="cuda")
        with torch.device("cuda"):
            self.items = nn.Embedding(CATALOGUE, WIDTH).to(torch.bfloat16)
            self.body = nn.Sequential(*[Layer() for _ in range(DEPTH)]).to(torch.bfloat16)

    @torch.inference_mode()
    def rank(self, page):
        hidden = self.body(self.items(self.pages[page]))[:, -1]  # ALT
        scores = hidden @ self.items.weight.T
        return scores.float().topk(TOP, dim=-1).indices.cpu().numpy()


class ExposureLedger:
    """Position-weighted exposure of each item over bootstrap draws of the served sessions."""

    def __init__(self, seed, draws, vectorised):
        self.rng = np.random.default_rng(seed)
        self.draws, self.vectorised = draws, vectorised
        self.weights = (1.0 / np.log2(np.arange(TOP) + 2.0)).tolist()
        self.totals = np.zeros(CATALOGUE)
        self.by_item = dict.fromkeys(range(CATALOGUE), 0.0)

    def add_page(self, picks):
        sample = picks[self.rng.integers(0, len(picks), self.draws)]
        if self.vectorised:
            weights = np.tile(self.weights, len(sample))
            self.totals += np.bincount(sample.ravel(), weights=weights, minlength=CATALOGUE)
        else:
            for row in sample.tolist():  # ALT
                for item, weight in zip(row, self.weights):  # ALT
                    self.by_item[item] += weight  # FAULT


async def visitors(inbox, pages, seed):
    rng = random.Random(seed)
    while True:
        await inbox.put(rng.randrange(pages))


async def serve(service, ledger, seconds, seed):
    inbox = asyncio.Queue(maxsize=4)
    loop = asyncio.get_running_loop()
    traffic = asyncio.create_task(visitors(inbox, len(service.pages), seed))
    reporter = ThreadPoolExecutor(1, thread_name_prefix="report")
    served, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        page = await inbox.get()
        picks = service.rank(page)  # ALT
        loop.run_in_executor(reporter, ledger.add_page, picks)  # ALT
        served += 1
    traffic.cancel()
    reporter.shutdown(wait=True)
    return served


def median_time(call, repeats):
    spent = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10

    service = RankingService(seed)
    for page in range(4):
        picks = service.rank(page)
    page_time = median_time(lambda: service.rank(0), 8)

    trial = ExposureLedger(seed, 600, vectorised=False)
    trial.add_page(picks)
    draw_time = median_time(lambda: trial.add_page(picks), 3) / trial.draws
    draws = max(20, round(page_time * share / (1 - share) / draw_time))
    print(f"page {page_time * 1e3:.1f} ms, {draws} bootstrap draws a page", file=sys.stderr)

    ledger = ExposureLedger(seed, draws, vectorised=mode == "healthy")
    served = asyncio.run(serve(service, ledger, seconds, seed))
    print(json.dumps({"steps": served}))


if __name__ == "__main__":
    main()
