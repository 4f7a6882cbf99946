"""Tag video clips with a vision transformer while helper processes make thumbnails.

The tagger is pinned to one core, as recommended for low latency.
usage: video_tagger.py MODE SECONDS SEED [STRENGTH]
"""
import json
import multiprocessing
import os
import random
import sys
import time
import zlib

if __name__ == "__main__":  # the helpers need none of it
    import torch
    import torch.nn.functional as F

TRUTH = {"cause": ["cpu-preempted"], "culprit": "child", "line": "# FAULT", "compound": False}

HELPERS = 14
DIM, HEADS, PATCH = 1024, 16, 16


def thumbnailer(rank, pool, load, cores):
    """Shrinks frames and packs them; `load` is the number of helpers that have work."""
    if cores:
        os.sched_setaffinity(0, cores)
    rng = random.Random(pool * 100 + rank)
    frame = rng.randbytes(3 * 320 * 240)
    slot = 0.020
    parent = os.getppid()
    while os.getppid() == parent:
        work = min(1.0, max(0.0, load.value - rank))
        if load.value < 0:
            break
        if work < 0.02:
            time.sleep(0.05)
            continue
        end = time.perf_counter() + slot * work
        while time.perf_counter() < end:
            rows = [frame[i:i + 960:3] for i in range(0, len(frame), 9600)]
            zlib.crc32(zlib.compress(b"".join(rows), 1))
        if work < 1.0:
            time.sleep(slot * (1.0 - work))


class Tagger:
    """Vision transformer without frills, inference only."""

    def __init__(self, depth):
        def weight(rows, cols):
            return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * rows ** -0.5

        self.stem = weight(3 * PATCH * PATCH, DIM)
        self.layers = [(weight(DIM, 3 * DIM), weight(DIM, DIM), weight(DIM, 4 * DIM),
                        weight(4 * DIM, DIM)) for _ in range(depth)]
        self.head = weight(DIM, 400)

    def __call__(self, frames):
        b = frames.size(0)
        x = frames.to("cuda", non_blocking=True).to(torch.bfloat16).div(255)  # ALT
        x = x.view(b, 3, 14, PATCH, 14, PATCH).permute(0, 2, 4, 1, 3, 5)  # ALT
        x = x.reshape(b, 196, 3 * PATCH * PATCH) @ self.stem  # ALT
        for qkv, out, up, down in self.layers:
            h = F.layer_norm(x, (DIM,)) @ qkv  # ALT
            q, k, v = h.view(b, 196, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)  # ALT
            h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, 196, DIM)  # ALT
            x = x + h @ out  # ALT
            x = x + F.gelu(F.layer_norm(x, (DIM,)) @ up) @ down  # ALT
        return (x.mean(1) @ self.head).argmax(1)  # ALT


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strong = (sys.argv[4:] or ["strong"])[0] == "strong"
    share = 0.45 if strong else 0.115
    rng = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    batch = rng.choice([96, 112, 128])
    clips = [torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, device="cuda")
             .cpu().pin_memory() for _ in range(3)]
    votes = [0] * 400

    def run(model, span):
        """Tag clips for a while; seconds per clip."""
        n, t0 = 0, time.perf_counter()
        while time.perf_counter() - t0 < span:
            tags = model(clips[n % len(clips)])
            for tag in tags.tolist():  # FAULT
                votes[tag] += 1
            n += 1
        return (time.perf_counter() - t0) / n, n

    probe = Tagger(3)
    run(probe, 0.2)
    depth = max(2, min(40, round(0.024 * 3 / run(probe, 0.3)[0])))
    model = Tagger(depth)
    del probe

    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(everywhere)})
    run(model, 0.5)
    gpu_step = run(model, 0.8)[0]

    ctx = multiprocessing.get_context("spawn")
    load = ctx.Value("d", 0.0, lock=False)
    cores = None if mode == "fault" else everywhere - {max(everywhere)}
    helpers = [ctx.Process(target=thumbnailer, args=(i, seed, load, cores), daemon=True)
               for i in range(HELPERS)]
    for helper in helpers:
        helper.start()
    try:
        time.sleep(0.9 if mode == "fault" else 0.6)
        if mode == "fault":  # find how much thumbnail work there is to be
            low, high, level = 0.0, float(HELPERS), 6.0 if strong else 1.0
            for _ in range(4):
                load.value = level
                run(model, 0.1)
                lost = 1 - gpu_step / run(model, 0.6)[0]
                low, high = (level, high) if lost < share else (low, level)
                guess = level * min(2.0, max(0.4, share / max(lost, 0.01)))
                level = guess if low < guess < high else (low + high) / 2
            load.value = level
        else:
            load.value = 4.0
        run(model, 0.2)

        steps, used, start = 0, 0.0, time.perf_counter()
        while used < seconds:
            step, n = run(model, min(1.2, max(0.05, seconds - used)))
            steps += n
            used = time.perf_counter() - start
            if mode == "fault":
                lost = max(0.01, 1 - gpu_step / step)
                load.value = min(HELPERS, load.value * min(1.2, max(0.83, share / lost)))
        wall = time.perf_counter() - start
        final = load.value
    finally:
        load.value = -1.0
        for helper in helpers:
            helper.join(3)
            if helper.is_alive():
                helper.kill()
                helper.join()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / steps,
                      "gpu_step_ms": 1e3 * gpu_step, "depth": depth, "batch": batch,
                      "load": final}))


if __name__ == "__main__":
    with torch.no_grad():
        main()
