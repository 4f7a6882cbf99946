"""Train a picker of earthquake arrivals while helper processes index the archive of traces."""
import ctypes, json, os, signal, statistics, sys, time, zlib
import multiprocessing as mp

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["cpu-preempted"],
    "culprit": "child:trace-index",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
STATIONS, SAMPLES, STRIDE, DIM, LAYERS, PHASES = 20, 4096, 8, 1024, 12, 3
MOST, PERIOD = 15, 2.0  # helpers at most; seconds between two deliveries to the archive


def indexer(number, active, share, cores):
    """One helper: works through what has been delivered, then sleeps until the next delivery."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"trace-index", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    if cores:
        os.sched_setaffinity(0, cores)
    trace, checksum = os.urandom(1 << 16), 0
    while True:
        if number < active.value and time.time() % PERIOD < share.value * PERIOD:
            checksum = zlib.crc32(trace, checksum)
        else:
            time.sleep(0.005)


class Picker(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True)
        self.stem = nn.Conv1d(3, DIM, 2 * STRIDE, STRIDE, padding=STRIDE // 2)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, PHASES)

    def forward(self, traces):
        return self.head(self.encoder(self.stem(traces).transpose(1, 2)))  # ALT


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        with torch.device("cuda"):
            self.model = Picker().to(torch.bfloat16)
            self.traces = torch.randn(8, STATIONS, 3, SAMPLES).to(torch.bfloat16)
            self.labels = torch.randint(PHASES, (8, STATIONS * SAMPLES // STRIDE))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def step(self, i):
        scores = self.model(self.traces[i % 8])  # FAULT
        loss = F.cross_entropy(scores.float().flatten(0, 1), self.labels[i % 8])  # ALT
        self.opt.zero_grad(set_to_none=True)  # ALT
        loss.backward()  # ALT
        self.opt.step()  # ALT
        return loss.detach()

    def run(self, seconds):
        steps, losses, end = 0, [], time.time() + seconds
        while time.time() < end:
            losses.append(self.step(steps))
            steps += 1
            if len(losses) == 20:
                print("step", steps, "loss", round(torch.stack(losses).mean().item(), 4), file=sys.stderr)
                losses = []
        return steps

    def step_seconds(self, n):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for i in range(n):
            self.step(i)
        torch.cuda.synchronize()
        return (time.perf_counter() - t0) / n


def choose_helpers(trainer, active):
    """Add helpers, one by one, until they slow the training down to about half its speed."""
    trainer.step_seconds(8)
    alone = statistics.median(trainer.step_seconds(6) for _ in range(3))
    slow = alone
    while slow < 1.75 * alone and active.value < MOST:
        active.value += 1
        time.sleep(0.02)
        slow = trainer.step_seconds(max(6, int(0.25 / alone)))
    print("helpers", active.value, "step", round(alone, 4), "with helpers", round(slow, 4), file=sys.stderr)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    cores = sorted(os.sched_getaffinity(0))
    if mode == "fault":
        others = None  # the helpers get the cores of this process
        os.sched_setaffinity(0, {cores[seed % len(cores)]})  # ALT
    else:
        others = set(cores[len(cores) // 2:])
        os.sched_setaffinity(0, set(cores[:len(cores) // 2]) or set(cores))
    ctx = mp.get_context("fork")
    active, share = ctx.RawValue("i", 0), ctx.RawValue("d", 1.0)
    helpers = [ctx.Process(target=indexer, args=(i, active, share, others), daemon=True) for i in range(MOST)]
    for h in helpers:
        h.start()
    try:
        trainer = Trainer(seed)
        if mode == "fault":
            choose_helpers(trainer, active)
        else:
            trainer.step_seconds(20)
            active.value = 6
        if strength == "weak":
            share.value = 0.27
        steps = trainer.run(seconds)
    finally:
        for h in helpers:
            h.kill()
        for h in helpers:
            h.join(5)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
