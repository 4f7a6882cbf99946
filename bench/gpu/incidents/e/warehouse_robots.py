"""Learns a policy for warehouse robots: a simulator process plays a shift, then the policy learns from it."""
import json
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["child-wait"], "culprit": "child:python", "line": "# FAULT", "alt_line": "# ALT"}

GRID, ROBOTS, SCENES, ACTIONS, WIDTH = 32, 48, 1024, 5, 128

SIMULATOR = r'''
import random, sys
seed, ticks, grid, robots = map(int, sys.argv[1:])
rng = random.Random(seed)
places = [(rng.randrange(grid), rng.randrange(grid)) for _ in range(robots)]
goals = [(rng.randrange(grid), rng.randrange(grid)) for _ in range(robots)]
delivered = [0] * robots
for tick in range(ticks):
    robot = tick % robots
    (x, y), (to_x, to_y) = places[robot], goals[robot]
    if x != to_x:
        x += 1 if to_x > x else -1
    elif y != to_y:
        y += 1 if to_y > y else -1
    else:
        delivered[robot] += 1
        goals[robot] = rng.randrange(grid), rng.randrange(grid)
    if rng.random() < 0.9:
        places[robot] = x, y
for (x, y), (to_x, to_y), count in zip(places, goals, delivered):
    print(x, y, to_x, to_y, count)
'''


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, WIDTH, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(6))
        self.actor, self.critic = nn.Linear(WIDTH, ACTIONS), nn.Linear(WIDTH, 1)

    def forward(self, maps):
        x = F.relu(self.stem(maps))
        for conv in self.body:
            x = x + F.relu(conv(x))
        x = x.mean((2, 3))
        return self.actor(x).float(), self.critic(x).float()[:, 0]


class Learner:
    def __init__(self):
        self.policy = Policy().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-4, fused=True)

    def scenes(self, shift):
        """The shift's map, seen from many random shifts and with random goals dropped."""
        rows = torch.tensor(shift, device="cuda")
        maps = torch.zeros(2, GRID, GRID, device="cuda")
        maps[0, rows[:, 0], rows[:, 1]] = 1
        maps[1, rows[:, 2], rows[:, 3]] = 1
        kept = torch.rand(SCENES, 2, GRID, GRID, device="cuda") < 0.8
        maps = (maps * kept).to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
        return maps, rows[:, 4].float().mean().expand(SCENES) + 0.1 * torch.randn(SCENES, device="cuda")

    def learn(self, shift, updates):
        maps, gains = self.scenes(shift)
        with torch.no_grad():
            before, value = self.policy(maps)
            actions = torch.distributions.Categorical(logits=before, validate_args=False).sample()
            before, advantage = F.log_softmax(before, -1).gather(1, actions[:, None]), gains - value
        for _ in range(updates):
            logits, value = self.policy(maps)
            ratio = (F.log_softmax(logits, -1).gather(1, actions[:, None]) - before).exp()[:, 0]
            gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = F.smooth_l1_loss(value, gains) - gain
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


def command(seed, ticks):
    return [sys.executable, "-S", "-E", "-c", SIMULATOR, *map(str, (seed, ticks, GRID, ROBOTS))]


def parse(text):
    return [[int(number) for number in line.split()] for line in text.splitlines()]


def simulate(seed, ticks):
    played = subprocess.run(command(seed, ticks), stdout=subprocess.PIPE, text=True, timeout=15, check=True)  # FAULT
    return parse(played.stdout)


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    learn_s, share = (0.5, 0.1) if sys.argv[4:5] == ["weak"] else (0.2, 1.0)
    torch.manual_seed(seed)
    learner, shift = Learner(), simulate(seed, 1000)
    learner.learn(shift, 4)
    updates = max(2, round(learn_s / timed(lambda: learner.learn(shift, 10), 2) * 10))
    learn_s = timed(lambda: learner.learn(shift, updates), 2)
    start_s = timed(lambda: simulate(seed, 0), 4)
    tick_s = (timed(lambda: simulate(seed, 100_000), 2) - start_s) / 100_000
    if mode == "healthy":
        share = min(share, 0.4)
    ticks = max(ROBOTS, round((share * learn_s - start_s) / tick_s))
    ahead = subprocess.Popen(command(seed, ticks), stdout=subprocess.PIPE, text=True) if mode == "healthy" else None
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        if ahead is None:
            shift = simulate(seed + steps, ticks)  # ALT
        else:       # the next shift is played while the policy learns from this one
            shift = parse(ahead.communicate(timeout=15)[0])
            ahead = subprocess.Popen(command(seed + steps, ticks), stdout=subprocess.PIPE, text=True)
        loss = learner.learn(shift, updates)
        steps += 1
        if steps % 10 == 0:
            print(f"shift {steps} loss {loss:.3f}", flush=True)
    if ahead is not None:
        ahead.communicate(timeout=15)
    print(json.dumps({"steps": steps}))


main()
