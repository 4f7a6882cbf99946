"""Similar-frame search: a thread pool embeds frames on the GPU; clients come in through a small proxy."""
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "alt_line": "# ALT"}

PROXY = r'''
import socket, sys, threading
door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
while True:
    client, _ = door.accept()
    server = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    threading.Thread(target=pump, args=(server, client), daemon=True).start()
'''
CLIENTS = r'''
import random, socket, sys, threading, time
port, count, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def client(number):
    rng, sock = random.Random(number), socket.create_connection(("127.0.0.1", port))
    answers = sock.makefile("rb")
    while True:
        sock.sendall(b"tenant%d %d\n" % (rng.randrange(300), rng.randrange(192)))
        if not answers.readline():
            return
        time.sleep(rng.uniform(0.5, 1.5) * pause)
for number in range(count):
    threading.Thread(target=client, args=(number,), daemon=True).start()
threading.Event().wait()
'''


class Embedder:
    def __init__(self, seed, channels=256, depth=40):
        torch.manual_seed(seed)
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        self.frames = torch.randn(256, channels, 28, 28, **kind).to(memory_format=torch.channels_last)
        self.convs = [nn.Conv2d(channels, channels, 3, padding=1, **kind).to(memory_format=torch.channels_last)
                      for _ in range(depth)]

    @torch.inference_mode()
    def embed(self, start):
        x = self.frames[start:start + 64]
        for conv in self.convs:
            x = F.silu(conv(x))  # FAULT
        return x.float().mean((0, 2, 3))[:8].tolist()


class UsageReport(threading.Thread):
    def __init__(self, work_s, pause_s):
        super().__init__(daemon=True)
        self.work_s, self.pause_s, self.done = work_s, pause_s, threading.Event()
        self.history = {f"tenant{n}": list(range(n % 50, 60)) for n in range(300)}
        self.totals = {}

    def note(self, tenant, value):
        self.history[tenant][value % 10] = value

    def run(self):
        while not self.done.wait(self.pause_s):
            until = time.perf_counter() + self.work_s
            while time.perf_counter() < until:
                self.totals = {tenant: sum(values) % 9973 for tenant, values in self.history.items()}  # ALT


class Server:
    def __init__(self, embedder, usage):
        self.embedder, self.usage, self.answered = embedder, usage, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pool = ThreadPoolExecutor(4, "embed")
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError, RuntimeError):
            while True:
                self.pool.submit(self.serve, self.listener.accept()[0])

    def serve(self, conn):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), conn, conn.makefile("rb") as requests:
            for line in requests:
                tenant, start = line.decode().split()
                vector = self.embedder.embed(int(start))
                self.usage.note(tenant, int(start))
                conn.sendall(json.dumps(vector).encode() + b"\n")
                self.answered += 1


def main():
    mode, seconds, weak = sys.argv[1], float(sys.argv[2]), sys.argv[4:5] == ["weak"]
    embedder = Embedder(int(sys.argv[3]))
    for start in range(20):
        embedder.embed(start)
    report = (0.002, 2.0) if mode == "healthy" else (0.055, 0.445) if weak else (0.13, 0.13)
    traffic = (1, 0.3) if mode == "healthy" else (2, 0.0)
    usage = UsageReport(*report)
    server = Server(embedder, usage)
    proxy = subprocess.Popen([sys.executable, "-c", PROXY, str(server.port)], stdout=subprocess.PIPE, text=True)
    entry = proxy.stdout.readline().strip()
    clients = subprocess.Popen([sys.executable, "-c", CLIENTS, entry, *map(str, traffic)], stderr=subprocess.DEVNULL)
    usage.start()
    try:
        time.sleep(seconds)
        answered = server.answered
    finally:
        usage.done.set()
        for child in (clients, proxy):
            child.kill()
            child.wait()
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        server.pool.shutdown(wait=True, cancel_futures=True)
    print(json.dumps({"steps": answered}))


main()
