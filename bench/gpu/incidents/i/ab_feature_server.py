"""Ranking service for an A/B test: an asyncio front end takes cohort requests on loopback, the
scoring loop looks up user features in the feature store and ranks with the arm's model."""
import asyncio
import json
import queue
import socket
import struct
import subprocess
import sys
import threading
import time

import torch
from torch import nn

TRUTH = {
    "cause": ["net-wait"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
# The scoring loop asks the feature store over a loopback socket for each request and the store answers late.

START = time.monotonic()
DIM = 256
ITEMS = 128

FEATURE_STORE = r'''
import os, socket, struct, sys, time
lookup, dim = float(sys.argv[1]), int(sys.argv[2])
table = os.urandom(1024 * dim)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
conn, _ = server.accept()
conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while True:
    head = conn.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        break
    (users,) = struct.unpack("<I", head)
    if lookup > 0:
        time.sleep(lookup)
    conn.sendall(table[:users * dim])
'''


def start_store(lookup):
    proc = subprocess.Popen([sys.executable, "-c", FEATURE_STORE, f"{lookup:.6f}", str(DIM)],
                            stdout=subprocess.PIPE, text=True)
    sock = socket.create_connection(("127.0.0.1", int(proc.stdout.readline())))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return proc, sock


def fetch_features(sock, users):
    sock.sendall(struct.pack("<I", users))
    buf = bytearray(users * DIM)
    view, got = memoryview(buf), 0
    while got < len(buf):
        n = sock.recv_into(view[got:])  # FAULT
        if not n:
            raise ConnectionError("feature store went away")
        got += n
    return torch.frombuffer(buf, dtype=torch.int8).view(users, DIM)


def build_arm(width=4096, depth=14):
    layers = [nn.Linear(2 * DIM, width), nn.GELU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


class Ranker:
    def __init__(self):
        with torch.device("cuda"):
            self.arms = {a: build_arm().to(torch.bfloat16).eval() for a in "AB"}
            self.items = torch.randn(ITEMS, DIM, dtype=torch.bfloat16)

    @torch.inference_mode()
    def rank(self, arm, features):
        users = features.shape[0]
        x = features.to("cuda").to(torch.bfloat16).mul_(1 / 127)
        pairs = torch.cat((x[:, None].expand(-1, ITEMS, -1), self.items.expand(users, -1, -1)), dim=-1)
        scores = self.arms[arm](pairs.flatten(0, 1)).view(users, ITEMS)
        return scores.float().topk(10, dim=1).indices.cpu().tolist()


async def visitor(port, who, deadline):
    """A caller of the service: next cohort once the last one is ranked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    n = 0
    while time.monotonic() < deadline:
        writer.write(json.dumps({"cohort": who + 5 * n}).encode() + b"\n")
        await reader.readline()
        n += 1
    writer.close()


async def front_end(requests, deadline, callers):
    loop = asyncio.get_running_loop()

    async def handle(reader, writer):
        while line := await reader.readline():
            answer = loop.create_future()
            requests.put((json.loads(line), loop, answer))
            writer.write(json.dumps(await answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(*[visitor(port, i, deadline) for i in range(callers)])
    await asyncio.sleep(0.05)
    server.close()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    ranker = Ranker()
    users = 56 + 8 * (seed % 3)
    sample = torch.zeros(users, DIM, dtype=torch.int8)
    for _ in range(2):
        ranker.rank("A", sample), ranker.rank("B", sample)
    t = time.perf_counter()
    for _ in range(4):
        ranker.rank("A", sample), ranker.rank("B", sample)
    rank_s = (time.perf_counter() - t) / 8
    share = (0.80 if strength == "strong" else 0.11) * (1 + 0.04 * (seed % 3))

    store, sock = start_store(share * rank_s if mode == "fault" else 0.0)
    requests = queue.Queue()
    front = threading.Thread(target=lambda: asyncio.run(front_end(requests, deadline, 4)),
                             name="front-end", daemon=True)
    front.start()
    served = {"A": 0, "B": 0}
    while front.is_alive():
        try:
            request, loop, answer = requests.get(timeout=0.1)
        except queue.Empty:
            continue
        arm = "AB"[request["cohort"] % 2]
        top = ranker.rank(arm, fetch_features(sock, users))
        loop.call_soon_threadsafe(answer.set_result, top)
        served[arm] += 1
    sock.close()
    store.terminate()
    store.wait(timeout=5)
    print(f"served={served} rank_ms={rank_s * 1e3:.1f}")
    print(json.dumps({"steps": served}), flush=True)


if __name__ == "__main__":
    main()
