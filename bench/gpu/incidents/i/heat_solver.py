"""Explicit heat equation solver on a square plate: a block of sweeps is recorded as a CUDA
graph and replayed, the time step follows a controller, residuals go to a monitor."""
import json
import math
import sys
import time

import torch

TRUTH = {
    "cause": ["graph-recapture"],
    "culprit": ["self", "thread"],
    "line": "# FAULT",
    "compound": False,
}
# The time step is baked into the CUDA graph, so the solver captures and instantiates the graph again at each
# change of the step instead of replaying one.

START = time.monotonic()
SWEEPS = 60


class Plate:
    """Temperature field with a hot rim, and the work array of the stencil."""

    def __init__(self, n):
        self.u = torch.zeros(n, n, device="cuda")
        self.u[0].fill_(1.0)
        self.u[:, 0].fill_(0.5)
        self.lap = torch.zeros(n - 2, n - 2, device="cuda")
        self.inner = self.u[1:-1, 1:-1]
        self.north, self.south = self.u[:-2, 1:-1], self.u[2:, 1:-1]
        self.west, self.east = self.u[1:-1, :-2], self.u[1:-1, 2:]

    def sweep(self, dt):
        torch.add(self.north, self.south, out=self.lap)
        self.lap.add_(self.west)
        self.lap.add_(self.east)
        self.lap.sub_(self.inner, alpha=4)
        if isinstance(dt, float):
            self.inner.add_(self.lap, alpha=dt)
        else:
            self.inner.addcmul_(self.lap, dt)


def sweep_block(plate, dt):
    for _ in range(SWEEPS):
        plate.sweep(dt)


def record_block(plate, dt):
    """The block of sweeps as a graph; dt is a number or a device scalar."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # FAULT
        sweep_block(plate, dt)
    return graph


class StepController:
    """Slowly varying time step, always under the stability limit of 0.25."""

    def __init__(self, seed):
        self.phase = 0.1 * seed
        self.dt = 0.2

    def next(self):
        self.phase += 0.05
        self.dt = 0.2 + 0.04 * math.sin(self.phase)
        return self.dt


class Monitor:
    """Called with the residual now and then."""

    def __init__(self):
        self.history = []

    def __call__(self, block, residual):
        self.history.append((block, residual))
        del self.history[:-200]


def clock(fn, times):
    torch.cuda.synchronize()
    t = time.perf_counter()
    for _ in range(times):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - t) / times


def blocks_per_dt(record_s, replay_s, share):
    """For how many blocks a time step is kept before the controller is asked again."""
    return max(1, round(record_s * (1 - share) / (share * replay_s)))


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    plate = Plate(2048 + 128 * (seed % 4))
    controller = StepController(seed)
    dt_dev = torch.tensor(controller.dt, device="cuda")
    sweep_block(plate, controller.dt)
    sweep_block(plate, dt_dev)
    torch.cuda.synchronize()

    graph = record_block(plate, controller.dt)
    record_s = clock(lambda: record_block(plate, controller.dt), 4)
    graph.replay()
    replay_s = clock(graph.replay, 10)
    keep = blocks_per_dt(record_s, replay_s, 0.46 if strength == "strong" else 0.10)
    if mode == "healthy":
        graph = record_block(plate, dt_dev)

    monitor = Monitor()
    block = 0
    while time.monotonic() < deadline:
        if block % keep == 0:
            dt = controller.next()
            if mode == "fault":
                graph = record_block(plate, dt)
            else:
                dt_dev.fill_(dt)
        graph.replay()
        block += 1
        if block % 8 == 0:
            monitor(block, plate.lap.amax().item())
    torch.cuda.synchronize()
    print(f"blocks={block} keep={keep} residual={monitor.history[-1][1] if monitor.history else -1:.5f} "
          f"record_ms={record_s * 1e3:.2f} replay_ms={replay_s * 1e3:.2f}")
    print(json.dumps({"steps": block}), flush=True)


if __name__ == "__main__":
    main()
