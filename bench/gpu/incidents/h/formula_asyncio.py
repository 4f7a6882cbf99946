"""asyncio service: clients send the constants of a response formula, we apply it to a big field."""
import asyncio
import ctypes
import json
import multiprocessing as mp
import os
import random
import signal
import socket
import sys
import time

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # leave nothing in the home folder
import torch
from torch.cuda.jiterator import _create_jit_fn

TRUTH = {
    "cause": ["lazy-load"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
CELLS = (192 + 16 * (SEED % 4)) * 1024 * 1024

WITH_NAMES = """template <typename T> T response(T x, T y, T gain, T decay) {
    return gain * x / (T(1) + exp(-decay * y)) + T(0.5) * y;
}"""
WITH_NUMBERS = """template <typename T> T response(T x, T y) {
    return T(%.9f) * x / (T(1) + exp(-T(%.9f) * y)) + T(0.5) * y;
}"""


def station(port, sock, go, keep):
    """A measuring station; it recalibrates itself every `keep` requests."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"station", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    sock.close()
    rng = random.Random()
    go.wait()
    conn = socket.create_connection(("127.0.0.1", port))
    stream = conn.makefile("rw")
    count, gain, decay = 0, 1.0, 1.0
    while True:
        time.sleep(0.45 + 0.35 * rng.random())
        if count % keep.value == 0:
            gain, decay = rng.uniform(0.4, 0.9), rng.uniform(0.5, 1.5)
        stream.write(json.dumps({"gain": gain, "decay": decay}) + "\n")
        stream.flush()
        if not stream.readline():
            return
        count += 1


class Field:
    def __init__(self):
        torch.manual_seed(SEED)
        self.x = torch.rand(CELLS, device="cuda")
        self.rounds = 40
        self.known = None
        self.general = _create_jit_fn(WITH_NAMES, gain=1.0, decay=1.0)
        self.special = None
        self.served = 0

    def formula(self, gain, decay, baked):
        if not baked:
            return self.general, {"gain": gain, "decay": decay}
        if self.known != (gain, decay):
            self.special = _create_jit_fn(WITH_NUMBERS % (gain, decay))
            self.known = (gain, decay)
        return self.special, {}

    def evaluate(self, gain, decay, baked):
        fn, names = self.formula(gain, decay, baked)  # ALT
        y = self.x
        for _ in range(self.rounds):
            y = fn(self.x, y, **names)  # FAULT
        return y.mean().item()

    async def talk(self, reader, writer):
        while True:
            line = await reader.readline()
            if not line:
                break
            ask = json.loads(line)
            answer = self.evaluate(ask["gain"], ask["decay"], MODE == "fault")  # ALT
            self.served += 1
            writer.write((json.dumps({"mean": answer}) + "\n").encode())
            await writer.drain()
        writer.close()


def timed(field, gain, decay, baked):
    torch.cuda.synchronize()
    start = time.perf_counter()
    field.evaluate(gain, decay, baked)
    return time.perf_counter() - start


def fit(field):
    """How often can a station recalibrate, given what a request costs?"""
    timed(field, 0.5, 1.0, False)
    field.rounds = max(20, round(field.rounds * 0.2 / timed(field, 0.5, 1.0, False)))
    work = timed(field, 0.5, 1.0, False)
    rng = random.Random()
    timed(field, rng.uniform(0.4, 0.9), 1.0, True)
    fresh = timed(field, rng.uniform(0.4, 0.9), 1.0, True)
    build = max(fresh - work, 0.005)
    share = 0.42 if STRENGTH == "strong" else 0.10
    keep = max(1, min(6, round(build / work * (1 - share) / share)))
    # the work of a request so that building every `keep` requests has that share
    field.rounds = max(20, round(field.rounds * build / keep * (1 - share) / share / work))
    return keep


async def serve(field, sock, go):
    server = await asyncio.start_server(field.talk, sock=sock)
    go.set()
    await asyncio.sleep(SECONDS)
    server.close()


def main():
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(8)
    ctx = mp.get_context("fork")
    go, keep = ctx.Event(), ctx.Value("i", 1)
    child = ctx.Process(target=station, args=(sock.getsockname()[1], sock, go, keep), daemon=True)
    child.start()
    try:
        field = Field()
        keep.value = fit(field)
        asyncio.run(serve(field, sock, go))
    finally:
        child.kill()
        child.join()
    print(json.dumps({"steps": field.served}), flush=True)


if __name__ == "__main__":
    main()
