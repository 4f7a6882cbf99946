"""Reinforcement learning of drone racing: the simulation runs in this process, on its own CPU, while the GPU learns.

A second process renders the races of the evaluation.
"""
import json
import os
import sys
import time
import multiprocessing as mp

import numpy as np

TRUTH = {
    "cause": ["cpu-preempted"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
STATE, ACTIONS, EPOCHS = 24, 4, 3


def renderer(go, cpus, duty, parent):
    """Draws frames; takes `duty` of a CPU (1: whatever it gets)."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    while not go.wait(1.0):
        if os.getppid() != parent:
            return
    pixel, period = 1, 0.02
    while os.getppid() == parent:
        wall, cpu = time.perf_counter(), time.process_time()
        while time.process_time() - cpu < period * min(duty, 1.0):
            for _ in range(2000):
                pixel = (pixel * 1103515245 + 12345) & 0x7FFFFFFF
        rest = period - (time.perf_counter() - wall)
        if duty < 1.0 and rest > 0.0:
            time.sleep(rest)


class Simulation:
    def __init__(self, drones, seed):
        rng = np.random.default_rng(seed)
        self.state = rng.standard_normal((drones, STATE), dtype=np.float32)
        self.wind = rng.standard_normal((drones, STATE), dtype=np.float32)
        self.force = np.zeros((drones, STATE), dtype=np.float32)
        self.thrust = np.zeros((drones, ACTIONS), dtype=np.float32)

    def advance(self, substeps):
        for _ in range(substeps):
            np.sin(self.state, out=self.force)  # ALT
            self.force[:, :ACTIONS] += self.thrust  # ALT
            self.force += self.wind  # ALT
            self.force *= 0.01  # ALT
            self.state *= 0.999  # ALT
            self.state += self.force  # ALT


class Learner:
    def __init__(self, drones, seed):
        import torch
        self.torch, nn, width = torch, torch.nn, 4096
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.net = nn.Sequential(nn.Linear(STATE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, ACTIONS + 1)).to("cuda", torch.bfloat16)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-5, fused=True)
        self.stage = [torch.empty(drones, STATE).pin_memory() for _ in range(2)]
        self.thrust = torch.empty(drones, ACTIONS).pin_memory()
        self.done = torch.cuda.Event()

    def launch(self, k):
        """Queue the next actions and the updates on one observation of all drones."""
        torch = self.torch
        obs = self.stage[k].to("cuda", non_blocking=True)
        x, reward, old = obs.bfloat16(), -obs[:, :3].square().sum(1).sqrt(), None
        for _ in range(EPOCHS):
            out = self.net(x).float()
            mean, value = out[:, :ACTIONS], out[:, ACTIONS]
            if old is None:
                old = mean.detach()
                action = old + 0.1 * torch.randn_like(old)
                self.thrust.copy_(action.tanh(), non_blocking=True)
            log_ratio = ((action - old).square() - (action - mean).square()).sum(1) / 0.02
            advantage = (reward - value).detach()
            ratio = log_ratio.clamp(-1.0, 1.0).exp()
            loss = (reward - value).square().mean() - (ratio.clamp(0.8, 1.2) * advantage).mean()
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
        self.done.record()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    allowed = sorted(os.sched_getaffinity(0))
    mine = allowed[(3 + seed) % len(allowed)]
    others = set(allowed) - {mine}
    os.sched_setaffinity(0, {mine})
    ctx = mp.get_context("fork")
    go = ctx.Event()
    duty = 1.0 if strength == "strong" else 0.25
    child = ctx.Process(target=renderer, args=(go, None if mode == "fault" else others, duty, os.getpid()), daemon=True)
    child.start()  # without CPUs of its own it inherits ours

    drones = 32768 + 2048 * (seed % 3)
    learner, sim = Learner(drones, seed), Simulation(drones, seed)
    learner.stage[0].numpy()[:] = sim.state

    def iterate(i, substeps):
        learner.launch(i % 2)
        sim.advance(substeps)  # FAULT
        learner.stage[(i + 1) % 2].numpy()[:] = sim.state
        learner.done.synchronize()
        sim.thrust[:] = learner.thrust.numpy()

    for i in range(10):
        iterate(i, 1)
    t0 = time.perf_counter()
    for i in range(12):
        iterate(i, 1)
    step_time = (time.perf_counter() - t0) / 12
    launch_time = 0.0
    for i in range(6):  # what the processor does in a step without the simulation
        t0 = time.perf_counter()
        learner.launch(0)
        learner.stage[1].numpy()[:] = sim.state
        launch_time += (time.perf_counter() - t0) / 6
        learner.done.synchronize()
    t0 = time.perf_counter()
    sim.advance(10)
    substep_time = (time.perf_counter() - t0) / 10
    substeps = max(1, round((0.86 * step_time - launch_time) / substep_time))
    for i in range(6):
        iterate(i, substeps)

    go.set()
    steps, end = 0, time.time() + seconds
    while time.time() < end:
        iterate(steps, substeps)
        steps += 1
    child.terminate()
    child.join()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
