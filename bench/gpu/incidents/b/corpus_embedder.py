"""Nightly job: embeds a corpus and exports a compressed sample of the vectors now and then."""
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

TRUTH = {"cause": ["child-wait"], "culprit": "child:gzip", "line": "# FAULT"}


class Embedder:
    def __init__(self, seed, width=1024, depth=8):
        torch.manual_seed(seed)
        self.table = torch.randn(30000, width, device="cuda", dtype=torch.bfloat16)
        self.layers = [(torch.randn(width, 4 * width, device="cuda", dtype=torch.bfloat16) / 32,
                        torch.randn(4 * width, width, device="cuda", dtype=torch.bfloat16) / 64)
                       for _ in range(depth)]
        self.documents, self.length = 4096 + 128 * (seed % 4), 8

    @torch.inference_mode()
    def batch(self):
        ids = torch.randint(0, 30000, (self.documents, self.length), device="cuda")
        x = self.table[ids].flatten(0, 1)
        for up, down in self.layers:
            x = x + torch.relu(x @ up) @ down
        x = x.view(self.documents, self.length, -1).float().mean(1)
        return torch.nn.functional.normalize(x, dim=1)


class Exporter:
    def __init__(self, folder, wait):
        self.folder, self.wait, self.serial, self.running = folder, wait, 0, []

    def export(self, vectors):
        sample = vectors[:4096, :128].half().cpu().numpy()
        path = os.path.join(self.folder, f"sample-{self.serial:06d}.npy")
        self.serial += 1
        np.save(path, sample)
        command = ["gzip", "-9", "-f", path]
        if self.wait:
            subprocess.run(command, check=True)  # FAULT
            os.remove(path + ".gz")              # picked up by the uploader in real life
        else:
            self.running.append((subprocess.Popen(command), path + ".gz"))
            self.collect()

    def collect(self, block=False):
        still = []
        for process, path in self.running:
            if block or process.poll() is not None:
                process.wait()
                os.remove(path)
            else:
                still.append((process, path))
        self.running = still


def timed(fn, n):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / n


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if "weak" in sys.argv[4:] else 1.1
    embedder = Embedder(seed)
    timed(embedder.batch, 5)
    batch_s = timed(embedder.batch, 20)
    with tempfile.TemporaryDirectory() as folder:
        exporter = Exporter(folder, wait=mode == "fault")
        every = 25
        if mode == "fault":
            vectors = embedder.batch()
            export_s = timed(lambda: exporter.export(vectors), 3)
            every = max(1, round(export_s / (share * batch_s)))

        batches, end = 0, time.time() + seconds
        while time.time() < end:
            vectors = embedder.batch()
            batches += 1
            if batches % every == 0:
                exporter.export(vectors)
        torch.cuda.synchronize()
        exporter.collect(block=True)
    print(json.dumps({"steps": batches}))


main()
