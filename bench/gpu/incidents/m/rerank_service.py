"""Search reranker: an asyncio service scores candidates of a query with a cross encoder.
usage: rerank_service.py MODE SECONDS SEED [STRENGTH]
(starts itself as: rerank_service.py store SEED | rerank_service.py client PORT WINDOW THINK SEED)
"""
import asyncio
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time

TRUTH = {"cause": ["net-wait"], "culprit": "child", "line": "# FAULT", "compound": False}

SHARDS, SHARD_BYTES, QUERIES = 4, 65536, 48
CANDIDATES, TOKENS, DIM, HEADS = 256, 128, 1024, 16
ASK = struct.Struct("!4sI")


def read_exact(sock, size):
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def store(seed):
    """Feature store: answers one shard per request; its latency can be set."""
    blob = random.Random(seed).randbytes(SHARD_BYTES)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    conn, _ = server.accept()
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    latency = 0.0
    while True:
        try:
            verb, number = ASK.unpack(read_exact(conn, ASK.size))
            if verb == b"LAT ":
                latency = number * 1e-6
                continue
            time.sleep(latency)
            conn.sendall(blob)
        except (EOFError, OSError):
            return


def client(port, window, think, seed):
    """Front end: keeps `window` queries under way, or thinks after each answer."""
    rng = random.Random(seed)
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for _ in range(window - 1):
            sock.sendall(struct.pack("!Q", rng.randrange(QUERIES)))
        while True:
            sock.sendall(struct.pack("!Q", rng.randrange(QUERIES)))
            read_exact(sock, 40)
            if think:
                time.sleep(rng.expovariate(1.0 / think))
    except (EOFError, OSError):
        pass


class FeatureStore:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shard(self, key):
        self.sock.sendall(ASK.pack(b"GET ", key))
        data, got = bytearray(SHARD_BYTES), 0
        view = memoryview(data)
        while got < SHARD_BYTES:
            n = self.sock.recv_into(view[got:])  # FAULT
            if n == 0:
                raise EOFError
            got += n
        return data

    def features(self, query):
        return bytearray().join([self.shard(query * SHARDS + i) for i in range(SHARDS)])  # ALT


class Reranker:
    def __init__(self, torch, depth):
        self.torch, self.F = torch, torch.nn.functional

        def weight(rows, cols):
            return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * rows ** -0.5

        self.words = torch.randn(1, TOKENS, DIM, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight(DIM, 3 * DIM), weight(DIM, DIM), weight(DIM, 4 * DIM),
                        weight(4 * DIM, DIM)) for _ in range(depth)]
        self.score = weight(DIM, 1)

    def top(self, features):
        """The ten best of the candidates whose features are given."""
        torch, F = self.torch, self.F
        raw = torch.frombuffer(features, dtype=torch.uint8).view(CANDIDATES, 1, DIM)
        x = raw.to("cuda").to(torch.bfloat16).div(128) + self.words  # (candidates, tokens, dim)
        for qkv, out, up, down in self.layers:
            h = (F.layer_norm(x, (DIM,)) @ qkv).view(CANDIDATES, TOKENS, 3, HEADS, DIM // HEADS)
            q, k, v = h.permute(2, 0, 3, 1, 4)
            h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            x = x + h.reshape(CANDIDATES, TOKENS, DIM) @ out
            x = x + F.gelu(F.layer_norm(x, (DIM,)) @ up) @ down
        return (x.mean(1) @ self.score).squeeze(1).topk(10).indices.tolist()


async def serve(lookup, model, front_end, seconds):
    """Answer queries of one front end for `seconds`; returns (steps, wall)."""
    finished, result = asyncio.Event(), [0, 1e-9]

    async def handle(reader, writer):
        start = time.perf_counter()
        try:
            while (left := start + seconds - time.perf_counter()) > 0:
                ask = await asyncio.wait_for(reader.readexactly(8), left)
                best = model.top(lookup(struct.unpack("!Q", ask)[0]))  # ALT
                writer.write(struct.pack("!10I", *best))
                await writer.drain()
                result[0] += 1
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            pass
        result[1] = time.perf_counter() - start
        writer.close()
        finished.set()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    front = subprocess.Popen([str(port) if arg == "PORT" else arg for arg in front_end])
    try:
        await asyncio.wait_for(finished.wait(), seconds + 15)
    finally:
        server.close()
        front.kill()
        front.wait()
    return result


def mean_time(fn, span):
    n, t0 = 0, time.perf_counter()
    while time.perf_counter() - t0 < span:
        fn()
        n += 1
    return (time.perf_counter() - t0) / n


def main():
    import torch
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.45 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.115
    torch.manual_seed(seed)
    me = [sys.executable, os.path.abspath(__file__)]
    shop = subprocess.Popen(me + ["store", str(seed)], stdout=subprocess.PIPE, text=True)
    try:
        remote = FeatureStore(int(shop.stdout.readline()))
        known = {q: remote.features(q) for q in range(QUERIES)}
        probe = Reranker(torch, 3)
        mean_time(lambda: probe.top(known[0]), 0.3)
        one = mean_time(lambda: probe.top(known[1]), 0.3) / 3
        depth = max(2, min(40, round((0.030 + 0.002 * (seed % 4)) / one)))
        model = Reranker(torch, depth)
        del probe
        mean_time(lambda: model.top(known[2]), 0.8)
        gpu_step = mean_time(lambda: model.top(known[3]), 1.0)

        asked = 0.0
        if mode == "fault":
            target = gpu_step * share / (1 - share)
            delay = target / SHARDS - 0.0003
            for _ in range(3):
                remote.sock.sendall(ASK.pack(b"LAT ", max(1, int(delay * 1e6))))
                asked = mean_time(lambda: remote.features(1), 0.4)
                delay += (target - asked) / SHARDS
            remote.sock.sendall(ASK.pack(b"LAT ", max(1, int(delay * 1e6))))
            lookup, window, think = remote.features, 4, 0.0
        else:
            lookup, window, think = known.__getitem__, 1, 4 * gpu_step
        front_end = me + ["client", "PORT", str(window), repr(think), str(seed)]
        steps, wall = asyncio.run(serve(lookup, model, front_end, seconds))
        remote.sock.close()
    finally:
        shop.terminate()
        shop.wait()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / max(1, steps),
                      "gpu_step_ms": 1e3 * gpu_step, "depth": depth, "lookup_ms": 1e3 * asked}))


if __name__ == "__main__":
    if sys.argv[1] == "store":
        store(int(sys.argv[2]))
    elif sys.argv[1] == "client":
        client(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
