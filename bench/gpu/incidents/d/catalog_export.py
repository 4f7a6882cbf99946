"""Embeds product photos and exports the vectors through gzip for the search team."""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": [["pageable-copy"], ["output-blocked"]], "culprit": ["self", "child:gzip"],
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

PRODUCTS, SIDE, WIDTH, HEADS, DEPTH, DIMS = 256, 384, 1024, 16, 4, 4096


class Photos:
    def __init__(self, seed, prefetch):
        rng = np.random.default_rng(seed)
        shape = (PRODUCTS, 3, SIDE, SIDE)
        self.batches = [torch.from_numpy(rng.integers(0, 256, shape, dtype=np.uint8)) for _ in range(3)]
        self.turn, self.prefetch = 0, prefetch
        if prefetch:
            self.batches, self.stream = [batch.pin_memory() for batch in self.batches], torch.cuda.Stream()
            self.ahead = self.start()

    def pick(self):
        self.turn += 1
        return self.batches[self.turn % len(self.batches)]

    def start(self):
        with torch.cuda.stream(self.stream):
            return self.pick().to("cuda", non_blocking=True)

    def next(self):
        if not self.prefetch:
            return self.pick().to("cuda")  # FAULT
        torch.cuda.current_stream().wait_stream(self.stream)
        photos = self.ahead
        photos.record_stream(torch.cuda.current_stream())
        self.ahead = self.start()
        return photos


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, WIDTH, 8, stride=8), nn.Linear(WIDTH, DIMS)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])

    def forward(self, photos, crops):
        small = F.avg_pool2d(photos.bfloat16() / 255, SIDE // 64)
        total = torch.zeros(PRODUCTS, DIMS, device="cuda")
        for crop in range(crops):
            x = self.patches(small.roll(crop, -1)).flatten(2).transpose(1, 2)
            total += self.head(self.blocks(x).mean(1))
        return F.normalize(total, dim=1)


class Export:
    def __init__(self, folder):
        self.file = Path(folder, "vectors.gz").open("wb")
        self.gzip = subprocess.Popen(["gzip", "-c"], stdin=subprocess.PIPE, stdout=self.file)
        self.staging = [torch.empty(PRODUCTS, DIMS, pin_memory=True) for _ in range(2)]
        self.turn, self.dims = 0, DIMS

    def stage(self, vectors):
        self.turn += 1
        host, copied = self.staging[self.turn % 2], torch.cuda.Event()
        host.copy_(vectors, non_blocking=True)
        copied.record()
        return host, copied

    def write(self, host, copied):
        copied.synchronize()
        data = host[:, :self.dims].numpy().tobytes()
        self.gzip.stdin.write(data)  # ALT
        return len(data)

    def close(self):
        self.gzip.stdin.close()
        self.gzip.wait()
        self.file.close()


def seconds_each(count, action):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.08 if sys.argv[4:5] == ["weak"] else 0.65
    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    with torch.device("cuda"):
        embedder = Embedder().bfloat16().eval()
    photos, crops, late = Photos(seed, prefetch=mode == "healthy"), 16, None
    with tempfile.TemporaryDirectory(dir=".", prefix="catalog-") as folder:
        export = Export(folder)
        try:
            batch = photos.next()
            embedder(batch, 4)
            crop_s = seconds_each(3, lambda: embedder(batch, 10)) / 10
            vectors = export.stage(embedder(batch, 4))
            bytes_per_s = export.write(*vectors) / seconds_each(4, lambda: export.write(*vectors))
            if mode == "fault":
                seconds_each(3, photos.next)
                crops = max(1, round(seconds_each(8, photos.next) / (share * crop_s)))
            wanted = bytes_per_s * min(share, 0.65) * crops * crop_s + 65536
            export.dims = min(DIMS, max(1, round(wanted / (4 * PRODUCTS))))
            done, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                vectors = export.stage(embedder(photos.next(), crops))
                if mode == "healthy":
                    vectors, late = late, vectors
                if vectors:
                    export.write(*vectors)
                done += 1
        finally:
            export.close()
    print(json.dumps({"steps": done}))


main()
