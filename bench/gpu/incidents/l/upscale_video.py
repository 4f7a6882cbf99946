"""Restore video frames and stream the proxies into an encoder process.

usage: upscale_video.py MODE SECONDS SEED [STRENGTH]
"""
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

# stands in for "encoder -i - -r FPS": takes a group of frames, is busy with it for 1/FPS
ENCODER = """
import sys, time, zlib
size, fps = int(sys.argv[1]), float(sys.argv[2])
source = sys.stdin.buffer
done = 0
while True:
    group = source.read(size)
    if len(group) < size:
        break
    done = zlib.crc32(group[:65536], done)
    time.sleep(1.0 / fps)
"""


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1)
        self.b = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class Restorer(nn.Module):
    def __init__(self, channels=128, blocks=32):
        super().__init__()
        self.inp = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(channels) for _ in range(blocks))
        self.out = nn.Conv2d(channels, 3, 3, padding=1)
        self.depth = blocks

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks[:self.depth]:
            x = block(x)
        return self.out(x)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True

    height, width, group = 540, 928 + 32 * (seed % 3), 4
    with torch.device("cuda"):
        net = Restorer().to(torch.bfloat16).to(memory_format=torch.channels_last)
        clips = [torch.randn(group, 3, height, width, dtype=torch.bfloat16)
                 .contiguous(memory_format=torch.channels_last) for _ in range(6)]

    def restore(i):
        full = net(clips[i % 6])
        luma = full.float().mean(1)[:, ::2, ::2]
        return (luma.sigmoid() * 255).to(torch.uint8).contiguous().cpu()

    def timed(count, skip):
        times = []
        for i in range(count):
            t = time.perf_counter()
            restore(i)
            times.append(time.perf_counter() - t)
        return statistics.median(times[skip:])

    # as deep as the time per group allows
    net.depth = 8
    short = timed(7, 3)
    net.depth = 16
    per_block = (timed(7, 3) - short) / 8
    net.depth = max(4, min(32, round(8 + (0.042 - short) / per_block)))
    group_s = timed(26, 14)

    frames = restore(0)
    size = frames.numel()
    if mode == "fault":
        fps = (1 - share) / group_s
    else:
        fps = 3.0 / group_s
    encoder = subprocess.Popen([sys.executable, "-S", "-c", ENCODER, str(size), repr(fps)],
                               stdin=subprocess.PIPE, bufsize=0)
    try:
        sink = encoder.stdin.fileno()

        def send(frames):
            left = memoryview(frames.numpy()).cast("B")
            while left:
                left = left[os.write(sink, left):]  # FAULT

        for i in range(5):
            send(restore(i))
        steps = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            frames = restore(steps)
            send(frames)  # ALT
            steps += 1
        elapsed = time.perf_counter() - start
        encoder.stdin.close()
        if encoder.wait(timeout=5) != 0:
            raise RuntimeError("encoder failed")
    finally:
        if encoder.poll() is None:
            encoder.kill()
            encoder.wait()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * group_s, "depth": net.depth, "fps": fps}))


if __name__ == "__main__":
    main()
