"""Render tiles of a city mosaic with a neural field and stream previews to an uplink process."""
import ctypes
import json
import multiprocessing as mp
import os
import signal
import sys
import time

import torch
import torch.nn as nn

TRUTH = {
    "cause": [["page-fault"], ["output-blocked"]],
    "culprit": ["self", "child:uplink"],
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": True,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
SIDE, SAMPLES, WIDTH, LAYERS = 512, 4, 1024, 6 + SEED % 2
PIXELS = SIDE * SIDE
ROW = 32768                     # bytes in a row of the mosaic
ROWS = 12288                    # the whole mosaic: 384 MiB
CHUNK = 16384


def uplink(read_end, write_end, pause):
    """Sends what it reads from the pipe over a (slow) radio link."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"uplink", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    os.close(write_end)
    while os.read(read_end, CHUNK):  # ALT
        if pause.value > 0:
            time.sleep(pause.value)  # ALT


class Renderer:
    def __init__(self):
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            parts = [nn.Linear(64, WIDTH), nn.ReLU(inplace=True)]
            for _ in range(LAYERS):
                parts += [nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)]
            self.field = nn.Sequential(*parts, nn.Linear(WIDTH, 8)).bfloat16()
            self.freq = 2.0 ** torch.linspace(0, 8, 32)
            self.ray = torch.linspace(0, 1, PIXELS * SAMPLES)
        self.rgb = torch.empty(PIXELS, 3, dtype=torch.uint8).pin_memory()

    @torch.inference_mode()
    def tile(self, number):
        angle = (self.ray + 0.01 * number)[:, None] * self.freq
        code = torch.cat([angle.sin(), angle.cos()], 1).to(torch.bfloat16)
        colour = self.field(code)[:, :3].float().sigmoid()
        colour = colour.view(PIXELS, SAMPLES, 3).mean(1)
        self.rgb.copy_((colour * 255).to(torch.uint8), non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.rgb


class Mosaic:
    def __init__(self):
        self.canvas = torch.empty(ROWS, ROW, dtype=torch.uint8)
        self.canvas[:64].fill_(17)

    def fresh(self, rows):
        """A clean mosaic for every tile, with the sky painted in."""
        self.canvas = torch.empty(ROWS, ROW, dtype=torch.uint8)  # ALT
        self.canvas[:rows].fill_(17)  # FAULT

    def paste(self, rgb):
        flat = rgb.view(-1)
        self.canvas.view(-1)[:flat.numel()].copy_(flat)  # ALT
        return self.canvas.view(-1)[:PIXELS].numpy()


def fit(renderer, mosaic):
    """Seconds of a tile on the GPU, and of painting one row of a new mosaic."""
    for i in range(6):
        renderer.tile(i)
    start = time.perf_counter()
    for i in range(12):
        renderer.tile(i)
    tile = (time.perf_counter() - start) / 12
    mosaic.fresh(1500)
    start = time.perf_counter()
    for _ in range(4):
        mosaic.fresh(1500)
    return tile, (time.perf_counter() - start) / 4 / 1500


def main():
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    read_end, write_end = os.pipe()
    pause = ctx.Value("d", 0.0, lock=False)
    child = ctx.Process(target=uplink, args=(read_end, write_end, pause), daemon=True)
    child.start()
    os.close(read_end)
    pipe = os.fdopen(write_end, "wb", buffering=0)
    tiles = 0
    try:
        renderer, mosaic = Renderer(), Mosaic()
        tile, row = fit(renderer, mosaic)
        mosaic = Mosaic()
        part = 0.42 if STRENGTH == "strong" else 0.065
        rows = max(16, min(ROWS, round(tile * part / row)))
        if MODE == "fault":
            # a preview is 16 chunks, the pipe takes 4: for 12 of them we wait for the link
            pause.value = max(0.00005, tile * part / 12 - 0.00007)
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            rgb = renderer.tile(tiles)
            if MODE == "fault":
                mosaic.fresh(rows)  # ALT
            preview = mosaic.paste(rgb)
            pipe.write(preview)  # FAULT
            tiles += 1
            if tiles % 50 == 0:
                print(f"{tiles} tiles", file=sys.stderr)
    finally:
        child.kill()
        child.join()
        pipe.close()
    print(json.dumps({"steps": tiles}), flush=True)


if __name__ == "__main__":
    main()
