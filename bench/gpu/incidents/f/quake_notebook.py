"""A notebook over an earthquake archive: the front end, another process, sends cells; the kernel, this one, runs them."""
import json
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["sync-storm"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

TRACES, CHANNELS, SAMPLES, WIDTH, LAYERS = 1024, 3, 4096, 64, 4
STORM_IDLE = 0.75           # of the time of looking at single numbers, what the GPU does nothing

FRONT_END = r'''
import random, sys, time
seed, think = int(sys.argv[1]), float(sys.argv[2])
rng = random.Random(seed)
number = 0
while True:
    if think:
        time.sleep(0.2 + rng.expovariate(1 / think))
    cell = "magnitudes" if number % 8 == 7 else "detect"
    print(cell, rng.randrange(1 << 16), flush=True)
    answer = sys.stdin.readline()
    if not answer:
        break
    number += 1
'''


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, WIDTH, 7, padding=3)
        self.body = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 5, padding=2) for _ in range(LAYERS))
        self.head = nn.Conv1d(WIDTH, 1, 1)

    def forward(self, traces):
        x = F.relu(self.stem(traces))
        for conv in self.body:
            x = x + F.relu(conv(x))
        return self.head(x)[:, 0].float().sigmoid()


class Notebook:
    """What the earlier cells have left: the traces, the model, the picks so far."""

    def __init__(self, careful):
        self.traces = torch.randn(TRACES, CHANNELS, SAMPLES, device="cuda", dtype=torch.bfloat16)
        self.model = Picker().to("cuda", torch.bfloat16).eval()
        self.careful, self.views, self.picks = careful, 1, []

    def chances(self, offset):
        """The chance of an arrival at each sample, averaged over shifted views of the archive."""
        total = torch.zeros(TRACES, SAMPLES, device="cuda")
        for view in range(self.views):
            total += self.model(self.traces.roll(offset + view, 2))
        return total / self.views

    def pick_each(self, chances):
        picks = []
        for trace in range(TRACES):
            peak, sample = chances[trace].max(0)  # ALT
            picks.append((peak.item(), sample.item(), trace))  # FAULT
        return sorted(picks, reverse=True)[:100]

    def pick_all(self, chances):
        peaks, samples = chances.max(1)
        rows = torch.stack([peaks, samples.float()], 1).tolist()
        return sorted(((peak, int(sample), trace) for trace, (peak, sample) in enumerate(rows)), reverse=True)[:100]

    @torch.inference_mode()
    def detect(self, argument):
        chances = self.chances(argument % SAMPLES)
        self.picks = self.pick_all(chances) if self.careful else self.pick_each(chances)  # ALT
        return f"best pick {self.picks[0]}"

    @torch.inference_mode()
    def magnitudes(self, argument):
        sizes = self.traces.float().square().mean((1, 2)).log10()
        return f"{torch.histc(sizes, 20).argmax().item()} is the commonest class"

    def run(self, cell, argument):
        return {"detect": self.detect, "magnitudes": self.magnitudes}[cell](int(argument))  # ALT


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def calibrate(notebook, idle):
    """So many views that the GPU idles for the wanted share of a cell that picks trace by trace."""
    with torch.inference_mode():
        chances = notebook.chances(0)
        notebook.pick_each(chances)
        pick_s = timed(lambda: notebook.pick_each(chances), 3)
        notebook.views = 10
        notebook.chances(1)
        view_s = timed(lambda: notebook.chances(1), 3) / 10
    return max(1, round(pick_s * (STORM_IDLE / idle - 1) / view_s))


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.1 if sys.argv[4:5] == ["weak"] else 0.55
    torch.manual_seed(seed)
    notebook = Notebook(careful=mode == "healthy")
    notebook.views = calibrate(notebook, idle)
    notebook.run("magnitudes", 0)
    notebook.run("detect", 0)
    # "run all" sends a cell after the other; somebody who reads the answers takes a while
    think = 0 if mode == "fault" else 0.6
    front = subprocess.Popen([sys.executable, "-c", FRONT_END, str(seed), str(think)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    steps, end = 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            cell, argument = front.stdout.readline().split()
            answer = notebook.run(cell, argument)  # ALT
            steps += 1
            front.stdin.write(f"[{steps}] {answer}\n")
    finally:
        front.kill()
        front.wait()
    print(json.dumps({"steps": steps}))


main()
