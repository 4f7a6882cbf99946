"""Simulates waves in a harbor basin: a CUDA graph advances the water, gauges record the level of every frame."""
import json
import math
import random
import sys
import time

import torch

TRUTH = {"cause": ["launch-bound"], "culprit": "self", "line": "# FAULT"}

SIDE, SUBSTEPS, FRAMES, MOST_GAUGES = 4096, 40, 4096, 8192


class Basin:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.level = torch.zeros(SIDE, SIDE, device="cuda")
        self.before = torch.zeros(SIDE, SIDE, device="cuda")
        self.depth = 0.1 + 0.1 * torch.rand(SIDE - 2, SIDE - 2, device="cuda")
        self.swell, self.energy = torch.zeros((), device="cuda"), torch.zeros((), device="cuda")
        self.graph = self.capture()

    def substep(self):
        level = self.level
        inner = level[1:-1, 1:-1]
        slope = level[2:, 1:-1] + level[:-2, 1:-1]
        slope += level[1:-1, 2:]
        slope += level[1:-1, :-2]
        slope.sub_(inner, alpha=4.0).mul_(self.depth)
        after = torch.add(slope, inner, alpha=1.998).sub_(self.before[1:-1, 1:-1], alpha=0.998)
        self.before.copy_(level)
        inner.copy_(after)
        level[1, 1:-1].add_(self.swell)

    def advance(self):
        for _ in range(SUBSTEPS):
            self.substep()
        self.energy.copy_(self.level.square().mean())

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance()
        return graph


class Gauges:
    def __init__(self, seed, one_by_one):
        rng = random.Random(seed)
        self.places = [(rng.randrange(SIDE), rng.randrange(SIDE)) for _ in range(MOST_GAUGES)]
        self.rows, self.columns = torch.tensor(self.places, device="cuda").unbind(1)
        self.smooth = torch.zeros(MOST_GAUGES, device="cuda")
        self.record = torch.zeros(FRAMES, MOST_GAUGES, device="cuda")
        self.count, self.one_by_one = 1000, one_by_one

    def read(self, frame, level):
        if self.one_by_one:
            for number, (row, column) in enumerate(self.places[:self.count]):
                self.smooth[number].lerp_(level[row, column], 0.3)  # FAULT
        else:
            self.smooth[:self.count].lerp_(level[self.rows[:self.count], self.columns[:self.count]], 0.3)
        self.record[frame % FRAMES] = self.smooth


class Simulation:
    def __init__(self, seed, one_by_one):
        self.basin, self.gauges, self.frame = Basin(seed), Gauges(seed, one_by_one), 0
        self.crest = torch.zeros((), device="cuda")

    def step(self):
        self.basin.swell.fill_(0.01 * math.sin(self.frame / 9))
        self.basin.graph.replay()
        energy = self.basin.energy.item()
        if not math.isfinite(energy):
            raise FloatingPointError(f"unstable at frame {self.frame}")
        self.gauges.read(self.frame, self.basin.level)
        self.frame += 1
        if self.frame % 100 == 0:
            self.crest = torch.maximum(self.crest, self.basin.level.amax())
            print(f"frame {self.frame} energy {energy:.3e}", flush=True)

    def seconds_each(self, count, action):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            action()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.13 if sys.argv[4:5] == ["weak"] else 1.0
    torch.set_grad_enabled(False)
    simulation = Simulation(seed, one_by_one=mode == "fault")
    basin, gauges = simulation.basin, simulation.gauges
    for _ in range(5):
        simulation.step()
    if mode == "fault":
        replay_s = simulation.seconds_each(20, basin.graph.replay)
        reading_s = simulation.seconds_each(10, lambda: gauges.read(0, basin.level)) / gauges.count
        gauges.count = min(MOST_GAUGES, max(1, round(share * replay_s / reading_s)))
    first, end = simulation.frame, time.perf_counter() + seconds
    while time.perf_counter() < end:
        simulation.step()
    frames = simulation.frame - first
    print(f"{gauges.count} gauges, highest crest {simulation.crest.item():.4f}")
    print(json.dumps({"steps": frames}))


main()
