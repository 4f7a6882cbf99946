"""Learns crop yields from seasons of weather; each few steps the predictions go through a pipe to a log shipper."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["output-blocked"], "culprit": "child:python", "line": "# FAULT", "alt_line": "# ALT"}

FIELDS, DAYS, WEATHER, CROPS, BATCH = 4096, 256, 24, 12, 64
WIDTH, LAYERS, HEADS, EVERY, RECORDS = 1536, 8, 12, 4, 64
REMARK = "Sown late after a wet spring, drilled in rows, second dressing of nitrogen still to be confirmed. " * 16

SHIPPER = r'''
import hashlib, json, sys, zlib
rounds = int(sys.argv[1])
with open(sys.argv[2], "wb") as log:
    for line in sys.stdin.buffer:
        record = json.loads(line)
        record["farm"] = hashlib.pbkdf2_hmac("sha256", record["farm"].encode(), b"crops", rounds).hex()
        log.write(zlib.compress(json.dumps(record).encode()))
'''


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.mix(self.before(x)).view(BATCH, DAYS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(*parts.unbind(0)).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        with torch.device("cuda"):
            layers = [nn.Linear(WEATHER, WIDTH), *(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, CROPS)]
            self.model = nn.Sequential(*layers).to(torch.bfloat16)
            self.weather = torch.randn(FIELDS, DAYS, WEATHER, dtype=torch.bfloat16)
            self.yields = torch.rand(FIELDS, CROPS)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def launch(self):
        fields = torch.randint(0, FIELDS, (BATCH,), device="cuda")
        predicted = self.model(self.weather[fields]).float().mean(1)
        F.smooth_l1_loss(predicted, self.yields[fields]).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return fields, predicted.detach()

    def report(self, steps):
        """Some steps, and what the last of them predicted, a line for each field."""
        for _ in range(EVERY):
            fields, predicted = self.launch()
        rows = zip(fields[:RECORDS].tolist(), predicted[:RECORDS].tolist())
        return b"".join(json.dumps({"step": steps, "farm": f"farm-{field}", "tonnes": [round(t, 3) for t in tonnes],
                                    "remark": REMARK}).encode() + b"\n" for field, tonnes in rows)


class Shipper:
    def __init__(self, rounds, path):
        self.child = subprocess.Popen([sys.executable, "-c", SHIPPER, str(rounds), path], stdin=subprocess.PIPE)

    def send(self, lines):
        self.child.stdin.write(lines)  # FAULT
        self.child.stdin.flush()  # FAULT

    def close(self):
        self.child.stdin.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.12 if sys.argv[4:5] == ["weak"] else 0.5
    trainer = Trainer(seed)
    timed(lambda: trainer.report(0), 2)
    report_s = timed(lambda: trainer.report(0), 4)
    line = trainer.report(0).splitlines()[0]
    base_s = timed(lambda: zlib.compress(json.dumps(json.loads(line)).encode()), 200)
    round_s = timed(lambda: hashlib.pbkdf2_hmac("sha256", b"farm-1", b"crops", 50_000), 4) / 50_000
    # the shipper and the GPU work at the same time: the slower of the two sets the pace
    rounds = 1
    if mode == "fault":
        rounds = max(1, round((report_s / (1 - idle) / RECORDS - base_s) / round_s))
    with tempfile.TemporaryDirectory(prefix="crops-") as folder:
        shipper = Shipper(rounds, os.path.join(folder, "log"))
        steps, end = 0, time.perf_counter() + seconds
        try:
            while time.perf_counter() < end:
                lines = trainer.report(steps)
                shipper.send(lines)  # ALT
                steps += EVERY
        finally:
            shipper.close()
    print(json.dumps({"steps": steps}))


main()
