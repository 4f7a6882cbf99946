"""Trains a recogniser of street signs and keeps compressed checkpoints of it."""
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["child-wait"], "culprit": "child:gzip", "line": "# FAULT", "alt_line": "# ALT"}

SIGNS, SIZE, BATCH, CLASSES, WIDTH, BLOCKS = 8192, 64, 256, 64, 192, 12


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, signs):
        x = F.relu(self.stem(signs))
        for conv in self.blocks:
            x = x + 0.3 * F.relu(conv(x))
        return self.head(x.mean((2, 3))).float()


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = Recogniser().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self.signs = torch.randint(0, 256, (SIGNS, 3, SIZE, SIZE), device="cuda", dtype=torch.uint8)
        self.classes = torch.randint(0, CLASSES, (SIGNS,), device="cuda")

    def launch(self):
        chosen = torch.randint(0, SIGNS, (BATCH,), device="cuda")
        signs = (self.signs[chosen].to(torch.bfloat16) / 255).contiguous(memory_format=torch.channels_last)
        loss = F.cross_entropy(self.model(signs), self.classes[chosen], label_smoothing=0.1)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


class Checkpoints:
    def __init__(self, model, folder):
        self.model, self.folder, self.number, self.running = model, folder, 0, []
        self.stream, self.copied, self.snapshot = torch.cuda.Stream(), torch.cuda.Event(), None

    def write(self, state):
        self.number += 1
        path = os.path.join(self.folder, f"signs-{self.number % 8}.pt")
        torch.save(state, path)  # ALT
        return ["gzip", "-1", "-f", path]

    def save(self):
        state = {name: value.cpu() for name, value in self.model.state_dict().items()}  # ALT
        subprocess.run(self.write(state), check=True)  # FAULT

    def mark(self):
        """Remembers the weights of this moment on the GPU."""
        self.snapshot = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.copied.record()

    def save_marked(self):
        """Saves what was marked, beside the steps launched since; gzip works on alone."""
        if self.snapshot is None:
            return
        self.stream.wait_event(self.copied)
        with torch.cuda.stream(self.stream):
            state = {name: value.cpu() for name, value in self.snapshot.items()}
        self.snapshot = None
        self.running = [child for child in self.running if child.poll() is None]
        self.running.append(subprocess.Popen(self.write(state)))

    def finish(self):
        for child in self.running:
            child.wait(timeout=20)


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
    trainer = Trainer(seed)
    with tempfile.TemporaryDirectory(prefix="signs-") as folder:
        checkpoints = Checkpoints(trainer.model, folder)
        timed(trainer.launch, 8)
        step_s = timed(trainer.launch, 12)
        checkpoints.save()
        save_s = timed(checkpoints.save, 3)
        every = max(2, round(save_s * (1 - idle) / (idle * step_s)))      # steps between checkpoints
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for number in range(every):
                loss = trainer.launch()
                if mode == "healthy" and number == min(3, every - 1):
                    checkpoints.save_marked()
            steps += every
            if mode == "healthy":
                checkpoints.mark()
            else:
                checkpoints.save()  # ALT
            print(f"step {steps} loss {loss.item():.4f}", flush=True)
        checkpoints.finish()
    print(json.dumps({"steps": steps}))


main()
