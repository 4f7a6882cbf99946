"""Credit-risk model, deep tabular network, with a home-grown experiment tracker."""
import itertools
import json
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": [["sync-storm"], ["output-blocked"]], "culprit": ["self", "child:python3"],
         "line": ["# FAULT 1", "# FAULT 2"], "compound": True}

SHIPPER = """
import os, sys, time
pause = float(sys.argv[1])
while os.read(0, 65536):
    if pause:
        time.sleep(pause)       # upload of one chunk
"""


class Tracker:
    """Sends binary records to a log shipper process."""

    def __init__(self, pause):
        self.shipper = subprocess.Popen([sys.executable, "-c", SHIPPER, str(pause)],
                                        stdin=subprocess.PIPE, bufsize=0)

    def send(self, record):
        self.shipper.stdin.write(record)  # FAULT 2

    def close(self):
        self.shipper.stdin.close()
        try:
            self.shipper.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.shipper.kill()
            self.shipper.wait()


class ResidualLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x)))


class Training:
    def __init__(self, seed):
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")
        width = 2048
        self.net = nn.Sequential(*[ResidualLayer(width) for _ in range(12)], nn.Linear(width, 1)).cuda()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.rows = torch.randn(8192 + 256 * (seed % 5), width, device="cuda")
        self.target = torch.rand(len(self.rows), 1, device="cuda")

    def step(self):
        loss = nn.functional.mse_loss(self.net(self.rows), self.target)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    def gradient_norms(self, count):
        norms = []
        for parameter in itertools.islice(itertools.cycle(self.net.parameters()), count):
            norms.append(parameter.grad.norm().item())  # FAULT 1
        return norms


def measure(fn, n):
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / n


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.08 if sys.argv[4:5] == ["weak"] else 0.6
    training = Training(seed)
    measure(training.step, 5)
    step_s = measure(training.step, 15)
    watched, pause = 0, 0.0
    if mode == "fault":
        training.gradient_norms(50)
        watched = max(4, round(share * step_s / (measure(lambda: training.gradient_norms(100), 3) / 100)))
        pause = max(0.0, share * step_s / 2 - 6e-5)
    tracker = Tracker(pause)
    histogram = np.random.default_rng(seed).random(65536, dtype=np.float32)     # 256 KiB a record

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        loss = training.step()
        if mode == "fault":
            norms = training.gradient_norms(watched)
            histogram[:len(norms)] = norms
            tracker.send(memoryview(histogram).cast("B"))
        elif steps % 25 == 0:
            tracker.send(b"%d %.6f\n" % (steps, loss.item()))
        steps += 1
    torch.cuda.synchronize()
    tracker.close()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
