"""Click ranker with one small adapter per user group, averaged weights, and a dashboard process fed by a pipe."""
import json
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": [["output-blocked"], ["launch-bound"]], "culprit": ["child:python3", "self"],
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

BATCH, WIDTH, GROUPS, RANK, FEATURES, BINS = 32768, 4096, 8192, 16, 64, 8192

DASHBOARD = r'''
import sys, time
per_byte, points = float(sys.argv[1]), 0
source, due = open(0, "rb", buffering=0), time.perf_counter()
while chunk := source.read(4096):
    points += chunk.count(b"\n")
    if per_byte:
        due = max(due, time.perf_counter() - 0.05) + per_byte * len(chunk)
        time.sleep(max(0.0, due - time.perf_counter()))
'''


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.adapters = nn.Parameter(torch.randn(GROUPS, RANK * FEATURES, device="cuda") / 8)
        trunk = [nn.Linear(RANK + FEATURES, WIDTH), nn.GELU()]
        for _ in range(8):
            trunk += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
        self.trunk = nn.Sequential(*trunk, nn.Linear(WIDTH, 1)).to("cuda", torch.bfloat16)

    def forward(self, group, features):
        adapter = F.embedding(group, self.adapters).view(-1, RANK, FEATURES)
        personal = torch.bmm(adapter, features.unsqueeze(2)).squeeze(2)
        return self.trunk(torch.cat((personal, features), 1).bfloat16()).squeeze(1).float()


class Averager:
    """Slow-moving copy of the adapters; `window` of them are refreshed per step, 0 means all at once."""

    def __init__(self, live):
        self.live, self.slow, self.window, self.next = live, live.detach().clone(), 0, 0

    @torch.no_grad()
    def update(self):
        if not self.window:
            self.slow.lerp_(self.live, 0.02)
            return
        for number in range(self.next, self.next + self.window):
            self.slow[number % GROUPS].lerp_(self.live[number % GROUPS], 0.02)  # ALT
        self.next = (self.next + self.window) % GROUPS


class Dashboard:
    def __init__(self, per_byte=0.0):
        command = [sys.executable, "-c", DASHBOARD, repr(per_byte)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)

    def publish(self, step, loss, scores):
        counts = torch.histc(scores, BINS, -4, 4).int().cpu().numpy().tobytes().hex()
        line = f'{{"step": {step}, "loss": {loss:.5f}, "scores": "{counts}"}}\n'.encode()
        self.child.stdin.write(line)  # FAULT
        return len(line)

    def close(self):
        self.child.stdin.close()
        self.child.kill()
        self.child.wait()


class Loop:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = Ranker()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)
        self.averager, self.dashboard, self.steps = Averager(self.model.adapters), Dashboard(), 0

    def step(self):
        group = torch.randint(GROUPS, (BATCH,), device="cuda")
        features = torch.randn(BATCH, FEATURES, device="cuda")
        scores = self.model(group, features)
        loss = F.binary_cross_entropy_with_logits(scores, (features[:, 0] > 0).float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        value = loss.item()
        self.averager.update()
        self.steps += 1
        return self.dashboard.publish(self.steps, value, scores.detach())

    def seconds_per_step(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    loop = Loop(seed)
    try:
        loop.seconds_per_step(8)
        if mode == "fault":
            extra_s = (0.12 if weak else 0.7) * loop.seconds_per_step(15)
            loop.averager.window = 2000
            loop.averager.update()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            loop.averager.update()
            torch.cuda.synchronize()
            loop.averager.window = max(1, round(2000 * extra_s / (time.perf_counter() - begin)))
            drain_s = loop.seconds_per_step(15) + extra_s
            size = loop.step()
            loop.dashboard.close()
            loop.dashboard = Dashboard(drain_s / size)
            loop.seconds_per_step(4)
        done, end = loop.steps, time.perf_counter() + seconds
        while time.perf_counter() < end:
            loop.step()
        print(json.dumps({"steps": loop.steps - done}))
    finally:
        loop.dashboard.close()


main()
