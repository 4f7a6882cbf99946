"""Nightly scoring job: an ensemble scores candidate rows on the GPU, a writer process stores the scores."""
import json
import multiprocessing as mp
import os
import sys
import tempfile
import time
import zlib

import numpy as np

TRUTH = {
    "cause": ["output-blocked"],
    "culprit": "child:python3",
    "line": "# FAULT",
    "alt_line": "# ALT",  # why the writer does not read the pipe
    "compound": False,
}


def writer(conn, folder, per_part, pack_s):
    """Collects scores into part files; each full part is packed before the next scores are read."""
    part, chunks = 0, []
    while True:
        try:
            chunks.append(conn.recv_bytes())
        except EOFError:
            return
        if len(chunks) < per_part:
            continue
        blob = b"".join(chunks)
        with open(os.path.join(folder, "part-%d.bin" % (part % 4)), "wb") as f:
            pos, deadline = 0, time.monotonic() + pack_s
            while time.monotonic() < deadline:
                blob_slice = blob[pos:pos + 32768]
                f.write(zlib.compress(blob_slice, 9))  # ALT
                pos = (pos + 32768) % len(blob)
            if pack_s == 0:
                f.write(blob)
        part, chunks = part + 1, []


def build(seed, dim, outputs):
    import torch
    nn = torch.nn
    torch.manual_seed(seed)
    nets = []
    for hidden in (8192, 7168):
        net = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
                            nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, outputs))
        nets.append(net.to("cuda", torch.bfloat16).eval())
    return nets


class Scorer:
    def __init__(self, seed):
        import torch
        self.torch = torch
        self.rows, self.dim, self.outputs = 15360 + 512 * (seed % 4), 1024, 8
        self.nets = build(seed, self.dim, self.outputs)
        self.inputs = [torch.randn(self.rows, self.dim).bfloat16().pin_memory() for _ in range(4)]
        self.hosts = [torch.empty(self.rows, self.outputs, pin_memory=True) for _ in range(2)]

    def launch(self, i):
        torch = self.torch
        with torch.inference_mode():
            x = self.inputs[i % len(self.inputs)].to("cuda", non_blocking=True)
            scores = sum(net(x).float() for net in self.nets).sigmoid()
            host = self.hosts[i % 2]
            host.copy_(scores, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return host, done

    def step_seconds(self):
        for i in range(30):
            if i == 10:
                self.torch.cuda.synchronize()
                t0 = time.perf_counter()
            self.launch(i)
        self.torch.cuda.synchronize()
        return (time.perf_counter() - t0) / 20


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    scorer = Scorer(seed)
    step_s = scorer.step_seconds()
    per_part = 4 if strength == "strong" else 12
    # packing hides behind about one batch of GPU work; the rest is what the scorer has to wait
    pack_s = 0.0 if mode == "healthy" else step_s * (1 + per_part * (1.5 if strength == "strong" else 0.11))
    ctx = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="scores-") as folder:
        receiver, sender = ctx.Pipe(duplex=False)
        child = ctx.Process(target=writer, args=(receiver, folder, per_part, pack_s), name="writer", daemon=True)
        child.start()
        receiver.close()
        steps, previous, end = 0, None, time.time() + seconds
        while time.time() < end:
            current = scorer.launch(steps)
            if previous is not None:
                host, done = previous
                done.synchronize()
                sender.send_bytes(host.numpy().reshape(-1).view(np.uint8))  # FAULT
            previous = current
            steps += 1
        scorer.torch.cuda.synchronize()
        sender.close()
        child.join(10)
        if child.is_alive():
            child.kill()
            child.join()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
