"""Trains a surrogate for planetary systems: integrates small systems with leapfrog and learns where the planets end up."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["launch-bound"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

SYSTEMS, BODIES, MOVES, DT, SOFT = 256, 8, 200, 0.002, 0.05
WIDTH, COPIES = 4096, 32


class Orbits:
    """A handful of bodies around each of many stars, on the GPU."""

    def __init__(self):
        self.masses = torch.rand(SYSTEMS, BODIES, device="cuda") * 0.01
        self.masses[:, 0] = 1.0
        self.start = torch.randn(SYSTEMS, BODIES, 3, device="cuda")
        self.places, self.speeds = self.start.clone(), torch.zeros_like(self.start)
        self.graph = None

    def reset(self):
        self.start.normal_()
        self.places.copy_(self.start)
        self.speeds.normal_(0, 0.5)

    def advance(self):
        places, speeds, weights = self.places, self.speeds, self.masses[:, None]
        for _ in range(MOVES):
            apart = places[:, None] - places[:, :, None]  # FAULT
            pull = apart.square().sum(-1).add_(SOFT).pow_(-1.5).mul_(weights)  # FAULT
            speeds.add_((apart * pull[..., None]).sum(2), alpha=DT)  # FAULT
            places.add_(speeds, alpha=DT)  # FAULT

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance()
        return graph

    def play(self):
        self.reset()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.advance()  # ALT
        return self.start.flatten(1), self.places.flatten(1)


class Surrogate:
    def __init__(self):
        size = 3 * BODIES
        layers = [nn.Linear(size, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(),
                  nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, size)]
        self.model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)

    def learn(self, before, after, rounds):
        """Rounds over the systems, each many times with slightly different starts."""
        before, after = before.repeat(COPIES, 1), after.repeat(COPIES, 1).to(torch.bfloat16)
        for _ in range(rounds):
            shaken = (before + 0.001 * torch.randn_like(before)).to(torch.bfloat16)
            loss = F.smooth_l1_loss(self.model(shaken), after)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


def timed(function, times):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        function()
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.1 if sys.argv[4:5] == ["weak"] else 0.5
    torch.manual_seed(seed)
    orbits, surrogate = Orbits(), Surrogate()
    pair = orbits.play()
    surrogate.learn(*pair, 3)
    round_s = timed(lambda: surrogate.learn(*pair, 10), 2) / 10
    eager_s = timed(orbits.play, 5)
    graph = orbits.capture()
    graph.replay()
    kernels_s = timed(graph.replay, 5)
    # the GPU idles for eager_s - kernels_s of a step that lasts eager_s and the rounds
    rounds = max(1, round(((eager_s - kernels_s) / idle - eager_s) / round_s))
    if mode == "healthy":
        orbits.graph = graph
    else:
        del graph
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        before, after = orbits.play()  # ALT
        loss = surrogate.learn(before, after, rounds).item()
        steps += 1
        if steps % 100 == 0:
            print(f"step {steps} loss {loss:.4f}", flush=True)
    print(json.dumps({"steps": steps}))


main()
