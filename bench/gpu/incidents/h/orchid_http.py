"""A small web service that names orchids; a visitor posts a picture now and then."""
import ctypes
import http.client
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["gil-wait"],
    "culprit": "thread",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
WIDTH, STORED, ROUNDS = 8192, 6, 6


def visitor(port, server, go):
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"visitor", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    server.socket.close()
    rng = random.Random(SEED)
    go.wait()
    while True:
        time.sleep(rng.uniform(0.5, 0.9))
        body = json.dumps({"pixels": [rng.random() for _ in range(64)]})
        conn = http.client.HTTPConnection("127.0.0.1", port)
        conn.request("POST", "/name", body, {"Content-Type": "application/json"})
        conn.getresponse().read()
        conn.close()


class Recommender:
    """Which orchids are looked at together (plain Python, small enough...)."""

    def __init__(self):
        rng = random.Random(SEED)
        self.visits = [[rng.randrange(400) for _ in range(6)] for _ in range(3000)]
        self.together = {}
        self.stop = False

    def rebuild(self):
        table = {}
        for visit in self.visits:  # ALT
            for a in visit:  # ALT
                row = table.setdefault(a, {})  # ALT
                for b in visit:  # ALT
                    row[b] = row.get(b, 0) + 1  # ALT
            if self.stop:
                return
        self.together = table

    def follow(self):
        while not self.stop:
            self.rebuild()  # ALT


class Namer:
    def __init__(self):
        torch.manual_seed(SEED)
        self.layers = [nn.Linear(WIDTH, WIDTH, bias=False, device="cuda", dtype=torch.bfloat16)
                       for _ in range(STORED)]
        self.rows = 8192
        self.lock = threading.Lock()
        self.served = 0

    @torch.inference_mode()
    def name(self, pixels):
        with self.lock:
            h = torch.tensor(pixels, dtype=torch.bfloat16, device="cuda").repeat(self.rows, WIDTH // 64)  # ALT
            for _ in range(ROUNDS):
                for lin in self.layers:
                    h = F.gelu(lin(h))  # FAULT
            kind = h[0].argmax().item()  # ALT
            self.served += 1
            return kind

    def fit_rows(self, per_layer):
        """As many crops per picture as fit the time we want to give a layer."""
        for _ in range(2):
            self.name([0.5] * 64)
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.name([0.5] * 64)
            took = (time.perf_counter() - start) / (ROUNDS * STORED)
            self.rows = max(1024, min(65536, int(self.rows * per_layer / took) // 256 * 256))
        self.name([0.5] * 64)
        self.served = 0


class Handler(BaseHTTPRequestHandler):
    namer = None

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        pixels = json.loads(self.rfile.read(size))["pixels"]
        kind = self.namer.name(pixels)  # ALT
        body = json.dumps({"orchid": kind}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.timeout = 0.2
    ctx = mp.get_context("fork")
    go = ctx.Event()
    client = ctx.Process(target=visitor, args=(server.server_address[1], server, go), daemon=True)
    client.start()
    try:
        namer = Namer()
        Handler.namer = namer
        namer.fit_rows(0.0061 if STRENGTH == "strong" else 0.0096)
        recommender = Recommender()
        recommender.rebuild()
        if MODE == "fault":
            threading.Thread(target=recommender.follow, daemon=True).start()
        go.set()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            server.handle_request()
        recommender.stop = True
        namer.lock.acquire(timeout=1.5)
    finally:
        client.kill()
        client.join()
    print(json.dumps({"steps": namer.served}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
