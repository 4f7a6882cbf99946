"""Notebook on customer segments: somebody clusters the same customers again and again and reads the outcome."""
import gc
import json
import random
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

TRUTH = {"cause": ["host-compute"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

CUSTOMERS, ROWS, CHUNKS, WIDTH, SEGMENTS = 250_000, 1 << 19, 4, 256, 4096


@dataclass
class Customer:
    number: int
    visits: list
    contract: dict


class Notebook:
    def __init__(self):
        self.count, self.out = 0, {}

    def run(self, cell, *arguments):
        self.count += 1
        begin = time.perf_counter()
        value = self.out[self.count] = cell(*arguments)
        elapsed = time.perf_counter() - begin
        print(f"In [{self.count}] {cell.__name__}: {elapsed * 1e3:.0f} ms", flush=True)
        return value, elapsed


def cell_setup(seed):
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    return random.Random(seed)


def cell_customers(seed):
    global customers
    spent = np.random.default_rng(seed).gamma(2.0, 40.0, (CUSTOMERS, 3)).round(2).tolist()
    customers = [Customer(number, visits, {"plan": "basic", "months": [number % 12, number % 7]})
                 for number, visits in enumerate(spent)]
    return len(customers), sum(customer.visits[0] for customer in customers) / len(customers)


def cell_features():
    global features, ones
    features = torch.randn(CHUNKS, ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    ones = torch.ones(ROWS, device="cuda")
    return tuple(features.shape)


def free_memory():
    return gc.collect()  # FAULT


def assign_and_move(centers):
    length = centers.float().square().sum(1).bfloat16()
    sums = torch.zeros(SEGMENTS, WIDTH, device="cuda")
    sizes = torch.zeros(SEGMENTS, device="cuda")
    spread = torch.zeros((), device="cuda")
    for chunk in features:
        distance = torch.addmm(length, chunk, centers.T, alpha=-2.0)
        nearest = distance.min(1)
        sums.index_add_(0, nearest.indices, chunk.float())
        sizes.index_add_(0, nearest.indices, ones)
        spread += nearest.values.float().mean()
    moved = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1.0)[:, None], centers.float())
    return moved.bfloat16(), (spread / CHUNKS).item()


def cell_cluster(rounds, tidy_every, end):
    centers = features[0, torch.randint(ROWS, (SEGMENTS,), device="cuda")]
    history = []
    while len(history) < rounds and time.perf_counter() < end:
        centers, spread = assign_and_move(centers)
        history.append(spread)
        if tidy_every and len(history) % tidy_every == 0:
            free_memory()  # ALT
    return history


def cell_summary(history):
    return {"rounds": len(history), "first": history[0], "last": history[-1]} if history else {}


def cell_tidy_once():
    return free_memory()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 0.8
    notebook = Notebook()
    rng, _ = notebook.run(cell_setup, seed)
    notebook.run(cell_customers, seed)
    notebook.run(cell_features)
    notebook.run(cell_cluster, 6, 0, float("inf"))
    round_s = notebook.run(cell_cluster, 20, 0, float("inf"))[1] / 20
    notebook.run(cell_tidy_once)
    tidy_s = min(notebook.run(cell_tidy_once)[1] for _ in range(3))
    tidy_every = max(1, round(tidy_s / (share * round_s))) if mode == "fault" else 0

    done, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        rounds = max(rng.randint(30, 60), 2 * tidy_every)
        history, _ = notebook.run(cell_cluster, rounds, tidy_every, end)
        done += len(history)
        notebook.run(cell_summary, history)
        if mode == "healthy":
            time.sleep(min(rng.uniform(1.0, 3.0), max(0.0, end - time.perf_counter())))
    print(json.dumps({"steps": done}))


main()
