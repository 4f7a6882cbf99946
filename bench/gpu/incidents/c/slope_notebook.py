"""Notebook on leaky activations: cells that someone runs again and again with other slopes."""
import functools
import json
import os
import random
import sys
import time

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"

import torch
from torch.cuda.jiterator import _create_jit_fn as create_jit_fn

TRUTH = {"cause": ["lazy-load"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

GENERAL = "template <typename T> T leaky(T x, T slope) { return x < T(0) ? slope * x : x; }"
SPECIAL = "template <typename T> T leaky(T x) {{ return x < T(0) ? T({slope:.7f}) * x : x; }}"


class Notebook:
    """Runs cells in order and shows what a front end would show."""

    def __init__(self):
        self.count, self.out = 0, {}

    def run(self, cell, *arguments):
        self.count += 1
        begin = time.perf_counter()
        value = cell(*arguments)
        elapsed = time.perf_counter() - begin
        self.out = {self.count: value}
        print(f"In [{self.count}] {cell.__name__}: {elapsed * 1e3:.0f} ms", flush=True)
        return value, elapsed


def cell_setup(seed):
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    torch.set_grad_enabled(False)
    return random.Random(seed)


def cell_data(rows=16384, width=4096, chunks=4):
    global pixels
    pixels = torch.randn(chunks, rows, width, device="cuda")
    return tuple(pixels.shape)


def cell_weights(width=4096, depth=6):
    global layers
    layers = [torch.randn(width, width, device="cuda") * (2 / width) ** 0.5 for _ in range(depth)]
    return len(layers)


def cell_general_kernel():
    global general
    general = create_jit_fn(GENERAL, slope=0.01)
    return GENERAL


def cell_response(activation, passes):
    spread = torch.zeros((), device="cuda")
    for n in range(passes):
        h = pixels[n % len(pixels)]
        for w in layers:
            h = activation(h @ w)  # FAULT
        spread += h.square().mean()
    return (spread / passes).item()


def cell_special_kernel(slope):
    return create_jit_fn(SPECIAL.format(slope=slope))  # ALT


def activation_for(notebook, slope, special):
    if special:
        return notebook.run(cell_special_kernel, slope)[0]
    return functools.partial(general, slope=slope)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    notebook = Notebook()
    rng, _ = notebook.run(cell_setup, seed)
    notebook.run(cell_data)
    notebook.run(cell_weights)
    notebook.run(cell_general_kernel)
    warm = functools.partial(general, slope=0.1)
    notebook.run(cell_response, warm, 5)
    pass_s = notebook.run(cell_response, warm, 20)[1] / 20

    special = mode == "fault"
    passes, think = 30, (1.0, 2.5)
    if special:
        built = []
        for _ in range(4):
            activation = activation_for(notebook, rng.uniform(0.01, 0.6), special)
            built.append(notebook.run(cell_response, activation, 1)[1] - pass_s)
        build_s = sorted(built[1:])[1]
        passes, think = max(1, round((9.0 if weak else 1.4) * build_s / pass_s)), None

    evaluated, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        activation = activation_for(notebook, rng.uniform(0.01, 0.6), special)
        notebook.run(cell_response, activation, passes)
        evaluated += passes
        if think:
            time.sleep(min(rng.uniform(*think), max(0.0, end - time.perf_counter())))
    print(json.dumps({"steps": evaluated}))


main()
