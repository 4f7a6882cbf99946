"""Upscales a video stream with a residual conv net and pipes the review copy
(720p, raw RGB) into an encoder process.

usage: video_upscale.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["output-blocked"], "culprit": "child", "line": "# FAULT", "compound": False}
import json
import os
import queue
import subprocess
import sys
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

HEIGHT, WIDTH, CHANNELS = 720, 1280, 128

ENCODER = r'''
import os, sys, time, zlib
per_block = float(sys.argv[1])
stream, size = zlib.compressobj(1), 0
until = time.perf_counter()
while True:
    block = os.read(0, 65536)
    if not block:
        break
    until = max(until, time.perf_counter()) + per_block * len(block) / 65536
    while time.perf_counter() < until:       # motion search
        size += len(stream.compress(block[:2048]))
'''


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.b = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x), inplace=True)) * 0.1


class Upscaler(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.head = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.body = nn.Sequential(*[Residual() for _ in range(blocks)])
        self.tail = nn.Conv2d(CHANNELS, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, frame):
        x = frame.permute(2, 0, 1)[None].to(torch.bfloat16).div_(255).contiguous(memory_format=torch.channels_last)
        big = self.shuffle(self.tail(self.body(self.head(x)))).clamp_(0, 1)
        small = F.avg_pool2d(big, 2)[0].permute(1, 2, 0)
        return big, (small * 255).to(torch.uint8).contiguous()


class Pipeline:
    def __init__(self, blocks, seed, dev):
        torch.manual_seed(seed)
        self.dev = dev
        with torch.device(dev):
            net = Upscaler(blocks)
        self.net = net.to(torch.bfloat16).to(memory_format=torch.channels_last).eval()
        self.clip = [torch.randint(0, 256, (HEIGHT, WIDTH, 3), dtype=torch.uint8).pin_memory() for _ in range(6)]
        self.luma = torch.zeros((), device=dev)

    def frame(self, i, host):
        src = self.clip[i % len(self.clip)].to(self.dev, non_blocking=True)
        big, small = self.net(src)
        self.luma.lerp_(big.float().mean(), 0.1)
        host.copy_(small, non_blocking=True)


class Shot:
    def __init__(self):
        self.host = torch.empty(HEIGHT, WIDTH, 3, dtype=torch.uint8, pin_memory=True)
        self.view = memoryview(self.host.numpy().reshape(-1))
        self.done = torch.cuda.Event()


def write_frame(fd, view):
    while len(view):
        n = os.write(fd, view)  # FAULT
        view = view[n:]


def writer(fd, todo, free):
    while True:
        shot = todo.get()
        if shot is None:
            return
        try:
            shot.done.synchronize()
            write_frame(fd, shot.view)
        except OSError:
            return
        free.put(shot)


def timed(fn, n=6, warm=3):
    for i in range(warm):
        fn(i)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    torch.set_grad_enabled(False)
    dev = torch.device("cuda")

    shots = [Shot() for _ in range(4)]
    t = [timed(lambda i, p=Pipeline(b, seed, dev): p.frame(i, shots[0].host)) for b in (2, 6)]
    per = max(1e-5, (t[1] - t[0]) / 4)
    blocks = max(1, min(60, 2 + round((0.020 + 0.002 * (seed % 4) - t[0]) / per)))
    pipe = Pipeline(blocks, seed, dev)
    step_s = timed(lambda i: pipe.frame(i, shots[0].host), n=12)
    drain = step_s * share / (1 - share)
    n_blocks = HEIGHT * WIDTH * 3 / 65536
    print(f"{blocks} blocks, {step_s * 1e3:.1f} ms per frame", flush=True)

    encoder = subprocess.Popen([sys.executable, "-c", ENCODER, str(drain / n_blocks)], stdin=subprocess.PIPE)
    fd = encoder.stdin.fileno()
    steps, helper, todo = 0, None, queue.Queue()
    try:
        time.sleep(0.2)
        if mode == "fault":
            t0 = time.monotonic()
            while time.monotonic() - t0 < seconds:
                shot = shots[steps % len(shots)]
                pipe.frame(steps, shot.host)
                shot.done.record()
                shot.done.synchronize()
                write_frame(fd, shot.view)  # ALT
                steps += 1
                if steps % 50 == 0:
                    print(f"frame {steps}", flush=True)
        else:
            free = queue.Queue()
            for s in shots:
                free.put(s)
            helper = threading.Thread(target=writer, args=(fd, todo, free), name="writer", daemon=True)
            helper.start()
            t0 = time.monotonic()
            while time.monotonic() - t0 < seconds:
                shot = free.get(timeout=10)
                pipe.frame(steps, shot.host)
                shot.done.record()
                todo.put(shot)
                steps += 1
                if steps % 50 == 0:
                    print(f"frame {steps}", flush=True)
        torch.cuda.synchronize()
    finally:
        todo.put(None)
        if helper is not None:
            helper.join(3)
        encoder.terminate()
        encoder.wait()
        try:
            encoder.stdin.close()
        except OSError:
            pass
    print(json.dumps({"steps": steps, "mode": mode, "luma": float(pipe.luma), "step_ms": round(step_s * 1e3, 2)}),
          flush=True)


if __name__ == "__main__":
    main()
