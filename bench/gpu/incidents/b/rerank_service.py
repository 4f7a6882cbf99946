"""Re-ranking service: one asyncio loop, a ranker on the GPU, user vectors from a feature store."""
import asyncio
import json
import socket
import subprocess
import sys
import time

import numpy as np
import torch

TRUTH = {"cause": ["net-wait"], "culprit": "child:python3", "line": "# FAULT"}

FEATURE_STORE = r'''
import array, random, socket, sys, time
delay, width = float(sys.argv[1]), int(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
conn, _ = listener.accept()
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
vector = array.array("f", [random.random() for _ in range(width)]).tobytes()
for key in conn.makefile("rb"):
    time.sleep(delay)            # the row lives in another region
    conn.sendall(vector)
'''
TRAFFIC = r'''
import random, socket, sys, threading, time
port, clients, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def client(n):
    rng, sock = random.Random(n), socket.create_connection(("127.0.0.1", port))
    answers = sock.makefile("rb")
    while True:
        sock.sendall(b"%d\n" % rng.randrange(100000))
        if not answers.readline():
            return
        time.sleep(pause * rng.expovariate(1))
for n in range(clients):
    threading.Thread(target=client, args=(n,), daemon=True).start()
sys.stdin.read()
'''


class Ranker:
    def __init__(self, seed, width=4096, layers=8):
        torch.manual_seed(seed)
        self.width, where = width, {"device": "cuda", "dtype": torch.bfloat16}
        self.passages = torch.randn(8192 + 256 * (seed % 4), width, **where)
        self.layers = [torch.randn(width, width, **where) / 64 for _ in range(layers)]

    @torch.inference_mode()
    def rank(self, user_vector):
        user = torch.from_numpy(user_vector).to("cuda", torch.bfloat16)
        x = self.passages * user
        for w in self.layers:
            x = torch.relu(x @ w)
        return x.mean(1).topk(10).indices.tolist()


class FeatureClient:
    def __init__(self, port, width, use_cache):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.sock.makefile("rb")
        self.bytes = 4 * width
        vector = self.fetch(b"0")                        # hot users are loaded once at start
        self.cache = {user: vector for user in range(100000)} if use_cache else {}

    def fetch(self, key):
        self.sock.sendall(key + b"\n")
        return np.frombuffer(self.reader.read(self.bytes), np.float32).copy()  # FAULT

    def get(self, user):
        vector = self.cache.get(user)
        return self.fetch(b"%d" % user) if vector is None else vector


class Service:
    def __init__(self, ranker, features):
        self.ranker, self.features, self.served = ranker, features, 0

    async def handle(self, reader, writer):
        while line := await reader.readline():
            top = self.ranker.rank(self.features.get(int(line)))
            writer.write(json.dumps(top).encode() + b"\n")
            await writer.drain()
            self.served += 1
        writer.close()

    async def run(self, seconds, clients, pause):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        traffic = subprocess.Popen([sys.executable, "-c", TRAFFIC, str(port), str(clients), str(pause)],
                                   stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        await asyncio.sleep(seconds)
        server.close()
        traffic.kill()
        traffic.wait()


def main():
    mode, seconds, weak = sys.argv[1], float(sys.argv[2]), sys.argv[4:5] == ["weak"]
    ranker = Ranker(int(sys.argv[3]))
    for n in range(10):                                  # warm up; the last one counts
        start = time.perf_counter()
        ranker.rank(np.ones(ranker.width, np.float32))
        rank_s = time.perf_counter() - start
    delay = rank_s * (0.11 if weak else 1.2) if mode == "fault" else 0.0
    store = subprocess.Popen([sys.executable, "-c", FEATURE_STORE, str(max(0.0, delay - 1e-4)), str(ranker.width)],
                             stdout=subprocess.PIPE, text=True)
    try:
        features = FeatureClient(int(store.stdout.readline()), ranker.width, mode == "healthy")
        service = Service(ranker, features)
        asyncio.run(service.run(seconds, *((4, 0.0) if mode == "fault" else (1, 0.25))))
    finally:
        store.kill()
        store.wait()
    print(json.dumps({"steps": service.served}))


main()
