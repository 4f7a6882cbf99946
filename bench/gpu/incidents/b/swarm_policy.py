"""Policy gradient on a swarm of simulated drones; the simulator runs on the GPU as tensors."""
import collections
import json
import sys
import threading
import time

import numpy as np
import torch
import torch.nn as nn

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT"}


class EpisodeStats(threading.Thread):
    """Keeps smoothed statistics of the episode returns for the dashboard."""

    def __init__(self, budget, interval):
        super().__init__(name="episode-stats", daemon=True)
        self.budget, self.interval = budget, interval
        self.recent = collections.deque([0.0] * 512, maxlen=512)
        self.smooth = 0.0
        self.mean = 0.0
        self.quit = threading.Event()

    def run(self):
        while not self.quit.wait(self.interval):
            self.mean = float(np.mean(list(self.recent)))
            deadline = time.perf_counter() + self.budget
            while time.perf_counter() < deadline:        # as many smoothing sweeps as fit in a tick
                for value in list(self.recent):
                    self.smooth += 0.001 * (value - self.smooth)  # FAULT


class Swarm:
    def __init__(self, drones):
        self.drones = drones
        self.state = torch.randn(drones, 64, device="cuda")
        self.dynamics = torch.randn(8, 64, device="cuda") * 0.05

    def step(self, action):
        self.state = torch.tanh(self.state * 0.98 + action @ self.dynamics)
        return -self.state.square().mean(1)


class Agent:
    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(),
                                    nn.Linear(1024, 8)).cuda()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-4, fused=True)

    def rollout(self, swarm, horizon=16):
        returns = torch.zeros(swarm.drones, device="cuda")
        with torch.no_grad():
            for _ in range(horizon):
                mean = self.policy(swarm.state)
                action = mean + 0.1 * torch.randn_like(mean)
                returns += swarm.step(action)
        return action, returns

    def update(self, swarm, action, returns):
        advantage = (returns - returns.mean()) / (returns.std() + 1e-6)
        log_prob = -(action - self.policy(swarm.state)).square().sum(1)
        loss = -(log_prob * advantage).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    swarm, agent = Swarm(32768 + 1024 * (seed % 5)), Agent()
    for _ in range(4):
        agent.update(swarm, *agent.rollout(swarm))
    torch.cuda.synchronize()

    if mode == "healthy":
        stats = EpisodeStats(budget=0.0, interval=1.0)
    elif strength == "weak":
        stats = EpisodeStats(budget=0.014, interval=0.090)
    else:
        stats = EpisodeStats(budget=0.040, interval=0.020)
    stats.start()

    iterations = 0
    end = time.time() + seconds
    while time.time() < end:
        action, returns = agent.rollout(swarm)
        agent.update(swarm, action, returns)
        stats.recent.append(returns.mean().item())
        iterations += 1

    stats.quit.set()
    stats.join()
    print(json.dumps({"steps": iterations}))


if __name__ == "__main__":
    main()
