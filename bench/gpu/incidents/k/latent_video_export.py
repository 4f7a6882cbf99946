"""Renders clips with a diffusion transformer and streams the raw frames into the video encoder, which
runs as a separate program behind a pipe."""
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["output-blocked"], "culprit": "child", "line": "# FAULT", "compound": False}

WIDTH, DEPTH, HEADS, SIDE, PATCH, FRAMES = 1024, 12, 16, 32, 16, 2
FRAME_BYTES = FRAMES * (SIDE * PATCH) ** 2 * 3
PIPE_BYTES = 65_536

ENCODER = """
import os, sys, time, zlib
seconds_per_byte = float(sys.argv[1])
check, due = 0, time.perf_counter()
while block := os.read(0, 65536):
    check = zlib.adler32(block, check)
    now = time.perf_counter()
    due = max(due, now - 0.001) + seconds_per_byte * len(block)
    if due > now:
        time.sleep(due - now)
print("encoder: checksum %08x" % check, file=sys.stderr)
"""


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.mid = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.shift = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, when):
        rows, tokens, _ = x.shape
        packed = self.qkv(self.pre(x) + self.shift(when)).view(rows, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(mixed.reshape(rows, tokens, WIDTH))
        return x + self.mlp(self.mid(x))


class Renderer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.pixels = nn.Linear(WIDTH, PATCH * PATCH * 3)
        self.clock = nn.Embedding(64, WIDTH)

    def denoise(self, latent, level):
        x, when = latent, self.clock.weight[level]
        for layer in self.layers:
            x = layer(x, when)
        return latent - 0.1 * F.layer_norm(x, (WIDTH,))

    def frames(self, latent):
        patches = self.pixels(latent[:FRAMES]).sigmoid().mul(255).to(torch.uint8)
        grid = patches.view(FRAMES, SIDE, SIDE, PATCH, PATCH, 3).permute(0, 1, 3, 2, 4, 5)
        return grid.reshape(FRAMES, SIDE * PATCH, SIDE * PATCH, 3)


class ClipJob:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.views = 16 + 2 * (seed % 3)
        with torch.device("cuda"):
            self.renderer = Renderer().to(torch.bfloat16)
        self.host = torch.empty(FRAMES, SIDE * PATCH, SIDE * PATCH, 3, dtype=torch.uint8).pin_memory()
        self.levels = 1

    @torch.inference_mode()
    def render(self):
        latent = torch.randn(self.views, SIDE * SIDE, WIDTH, device="cuda", dtype=torch.bfloat16)
        for level in range(self.levels):
            latent = self.renderer.denoise(latent, level % 64)
        self.host.copy_(self.renderer.frames(latent), non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return memoryview(self.host.numpy()).cast("B")

    def timed(self, repeats):
        spent = []
        for _ in range(repeats):
            began = time.perf_counter()
            self.render()
            spent.append(time.perf_counter() - began)
        return statistics.median(spent[3:])


class EncoderPipe:
    def __init__(self, seconds_per_byte):
        self.program = subprocess.Popen([sys.executable, "-S", "-c", ENCODER, repr(seconds_per_byte)],
                                        stdin=subprocess.PIPE, bufsize=0)

    def send(self, frame):
        pipe = self.program.stdin.fileno()
        while frame:
            frame = frame[os.write(pipe, frame):]  # FAULT

    def close(self):
        self.program.stdin.close()
        try:
            self.program.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.wait()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10

    job = ClipJob(seed)
    job.levels = max(2, min(64, round(0.045 / job.timed(9))))
    took = job.timed(9)
    pace = took * share / (1 - share) / (FRAME_BYTES - PIPE_BYTES) if mode == "fault" else 0.0
    print(f"{job.levels} levels, {took * 1e3:.1f} ms a frame pair", file=sys.stderr)

    encoder = EncoderPipe(pace)
    encoder.send(job.render())
    sent, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        encoder.send(job.render())  # ALT
        sent += 1
    encoder.close()
    print(json.dumps({"steps": sent}))


if __name__ == "__main__":
    main()
