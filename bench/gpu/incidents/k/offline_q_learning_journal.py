"""Q-learning on a batch of GPU-simulated plants. Callbacks run after each iteration; one of them keeps
the episode journal from which a crashed run is resumed."""
import json
import math
import os
import shutil
import statistics
import struct
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["io-wait"], "culprit": "self", "line": "# FAULT", "compound": False}

OBS, ACTIONS, WIDTH = 512, 64, 4096


class EpisodeJournal:
    """A ring of fixed-size records in one preallocated file."""

    RECORD, SLOTS = 16_384, 2_048

    def __init__(self, folder, seed):
        self.file = os.open(os.path.join(folder, "episodes.jnl"), os.O_RDWR | os.O_CREAT, 0o600)
        self.body = np.random.default_rng(seed).bytes(self.RECORD - 24)
        self.slot, self.per_iteration, self.durable_share, self.owed = 0, 1, 0.0, 0.0
        for _ in range(self.SLOTS):
            self.append(0, 0.0, 0.0)
        self.settle()

    def append(self, iteration, loss, reward):
        head = struct.pack("<qdd", iteration, loss, reward)
        os.pwrite(self.file, head + self.body, self.slot * self.RECORD)
        self.slot = (self.slot + 1) % self.SLOTS

    def settle(self):
        began = time.perf_counter()
        os.fsync(self.file)  # FAULT
        return time.perf_counter() - began

    def plan(self, allowance, durable):
        costs = []
        for _ in range(15):
            self.append(0, 0.0, 0.0)
            costs.append(self.settle())
        cost = statistics.median(costs)
        self.per_iteration = min(300, max(1, math.ceil(1.3 * allowance / cost)))
        self.durable_share = allowance if durable else 0.0
        print(f"settling takes {cost * 1e3:.2f} ms, {self.per_iteration} records", file=sys.stderr)

    def on_iteration(self, iteration, loss, reward):
        self.owed += self.durable_share
        for _ in range(self.per_iteration):
            self.append(iteration, loss, reward)
            if self.owed > 0.0:
                self.owed -= self.settle()  # ALT

    def close(self):
        self.settle()
        os.close(self.file)


def q_network():
    with torch.device("cuda"):
        net = nn.Sequential(nn.Linear(OBS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(),
                            nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(),
                            nn.Linear(WIDTH, ACTIONS))
    return net.to(torch.bfloat16)


class Learner:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.plants = 14_336 + 1024 * (seed % 4)
        self.online, self.target = q_network(), q_network()
        self.optim = torch.optim.AdamW(self.online.parameters(), lr=3e-5, fused=True)
        with torch.device("cuda"):
            self.drift = torch.randn(OBS, OBS, dtype=torch.bfloat16) / OBS ** 0.5
            self.push = torch.randn(ACTIONS, OBS, dtype=torch.bfloat16) * 0.1
            self.state = torch.randn(self.plants, OBS, dtype=torch.bfloat16)
        self.callbacks, self.updates = [], 1

    @torch.no_grad()
    def act(self):
        action = self.online(self.state).argmax(-1)
        following = torch.tanh(self.state @ self.drift + self.push[action])
        reward = -following.float().square().mean(-1)
        seen, self.state = self.state, following
        return seen, action, reward, following

    def iterate(self):
        for _ in range(self.updates):
            seen, action, reward, following = self.act()
            with torch.no_grad():
                goal = reward + 0.97 * self.target(following).float().amax(-1)
            value = self.online(seen).float().gather(1, action[:, None])[:, 0]
            loss = F.smooth_l1_loss(value, goal)
            self.optim.zero_grad(set_to_none=True)
            loss.backward()
            self.optim.step()
        return torch.stack([loss.detach(), reward.mean()]).tolist()

    def calibrate(self):
        for goal in (0.045, None):
            spent = []
            for _ in range(10):
                began = time.perf_counter()
                self.iterate()
                spent.append(time.perf_counter() - began)
            took = statistics.median(spent[3:])
            if goal:
                self.updates = max(1, round(goal / took))
        return took

    def run(self, seconds):
        iteration, until = 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            loss, reward = self.iterate()
            for callback in self.callbacks:
                callback(iteration, loss, reward)
            iteration += 1
        return iteration


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10
    folder = tempfile.mkdtemp(prefix="journal_", dir=os.path.dirname(os.path.abspath(__file__)))
    try:
        learner = Learner(seed)
        took = learner.calibrate()
        journal = EpisodeJournal(folder, seed)
        journal.plan(took * share / (1 - share), durable=mode == "fault")
        learner.callbacks.append(journal.on_iteration)
        iterations = learner.run(seconds)
        journal.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": iterations}))


if __name__ == "__main__":
    main()
