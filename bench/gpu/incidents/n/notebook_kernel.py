"""A notebook kernel: the front end (another process) sends cells over a pipe,
the kernel runs them one after the other.  Every cell tries an activation with
another gain on a large feature matrix and shows the score.

usage: notebook_kernel.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["lazy-load"], "culprit": "self", "line": "# FAULT", "compound": False}
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

CACHE = tempfile.mkdtemp(prefix="nbkernel_")
os.environ["PYTORCH_KERNEL_CACHE_PATH"] = CACHE

import torch

WIDTH = 4096

ACT_LITERAL = """
template <typename T> T soft_gate(T x) {
    T y = x * T(GAIN);
    T z = y * y;
    T p = T(0.5) + y * (T(0.197) - T(0.004) * z);
    return x * p;
}
"""

ACT_PARAM = """
template <typename T> T soft_gate(T x, T gain) {
    T y = x * gain;
    T z = y * y;
    T p = T(0.5) + y * (T(0.197) - T(0.004) * z);
    return x * p;
}
"""

FRONTEND = r'''
import json, random, sys, time
think, seed = float(sys.argv[1]), int(sys.argv[2])
rng = random.Random(seed)
n = 0
while True:
    n += 1
    cell = {"execution": n, "gain": round(rng.uniform(0.5, 2.0), 3)}
    try:
        sys.stdout.write(json.dumps(cell) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        break
    if think:
        time.sleep(think * rng.uniform(0.6, 1.6))
'''


def make_act(gain, execution):
    code = ACT_LITERAL.replace("GAIN", f"{gain + execution * 1e-6:.7f}")
    return torch.cuda.jiterator._create_jit_fn(code)


class Kernel:
    def __init__(self, rows, dev):
        self.features = torch.randn(rows, WIDTH, device=dev)
        self.w1 = torch.randn(WIDTH, WIDTH, device=dev) / WIDTH ** 0.5
        self.w2 = torch.randn(WIDTH, WIDTH, device=dev) / WIDTH ** 0.5
        self.shared = torch.cuda.jiterator._create_jit_fn(ACT_PARAM, gain=1.0)
        self.history = []

    def passes(self, act, repeat):
        for _ in range(repeat):
            h = self.features @ self.w1
            h = act(h)  # FAULT
            score = (h @ self.w2).square_().mean()
        return score

    def cell_literal(self, cell, repeat):
        act = make_act(cell["gain"], cell["execution"])  # ALT
        score = self.passes(act, repeat)  # ALT
        return score.item()

    def cell_param(self, cell, repeat):
        gain = cell["gain"]
        score = self.passes(lambda h: self.shared(h, gain=gain), repeat)
        return score.item()


def read_frontend(proc, inbox):
    for line in proc.stdout:
        inbox.put(json.loads(line))


def timed(fn, n=4, warm=2):
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def compile_cost(seed, dev):
    x = torch.randn(1 << 16, device=dev)
    costs = []
    for i in range(4):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        make_act(3.0 + i + 0.001 * (seed % 900), 0)(x)
        torch.cuda.synchronize()
        costs.append(time.perf_counter() - t0)
    return sorted(costs[1:])[1]


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.12
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    torch.set_grad_enabled(False)
    dev = torch.device("cuda")

    probe = Kernel(8192, dev)
    t = timed(lambda: probe.cell_param({"gain": 1.0}, 1))
    cost = compile_cost(seed, dev)
    target = min(0.016, max(0.004, 0.4 * cost))
    rows = int(8192 * target / t) // 512 * 512 + 512 * (seed % 3)
    rows = max(2048, min(98304, rows))
    del probe
    kernel = Kernel(rows, dev)
    step_s = timed(lambda: kernel.cell_param({"gain": 1.0}, 1))
    if mode == "fault":
        repeat = max(1, round(cost * (1 - share) / share / step_s))
        think = 0.0
    else:
        repeat = 10 + seed % 8
        think = 0.8
    print(f"{rows} rows, {step_s * 1e3:.1f} ms per pass, {repeat} passes per cell", flush=True)

    inbox = queue.Queue(maxsize=4)
    proc = subprocess.Popen([sys.executable, "-c", FRONTEND, str(think), str(seed)],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    cells, score = 0, float("nan")
    try:
        threading.Thread(target=read_frontend, args=(proc, inbox), name="frontend", daemon=True).start()
        t0 = time.monotonic()
        while True:
            left = seconds - (time.monotonic() - t0)
            if left <= 0:
                break
            try:
                cell = inbox.get(timeout=left)
            except queue.Empty:
                break
            if mode == "fault":
                score = kernel.cell_literal(cell, repeat)  # ALT
            else:
                score = kernel.cell_param(cell, repeat)
            kernel.history.append((cell["gain"], score))
            cells += 1
            if cells % 8 == 1:
                print(f"Out[{cell['execution']}]: gain {cell['gain']} score {score:.4f}", flush=True)
    finally:
        proc.terminate()
        proc.wait()
    print(json.dumps({"steps": cells, "mode": mode, "passes": cells * repeat, "step_ms": round(step_s * 1e3, 2),
                      "cost_ms": round(cost * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(CACHE, ignore_errors=True)
