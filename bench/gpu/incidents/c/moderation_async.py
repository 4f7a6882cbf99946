"""Comment moderation: an asyncio service around a recurrent scorer, with helpers that pack its audit log."""
import asyncio
import contextlib
import json
import os
import subprocess
import sys

import torch
from torch import nn

TRUTH = {"cause": ["cpu-preempted"], "culprit": "child:python3", "line": "# FAULT"}

PACKER = r'''
import os, sys, time, zlib
work, pause, parent = float(sys.argv[1]), float(sys.argv[2]), os.getppid()
entries = os.urandom(6000)
while os.getppid() == parent:
    until = time.process_time() + work
    while time.process_time() < until:
        zlib.compress(entries, 9)
    time.sleep(pause)
'''
USERS = r'''
import random, socket, sys, threading, time
port, users, pause, seed = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
def user(number):
    rng = random.Random(1000 * seed + number)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        replies = sock.makefile("rb")
        while True:
            words = " ".join(str(rng.randrange(5000)) for _ in range(96))
            sock.sendall(words.encode() + b"\n")
            if not replies.readline():
                return
            if pause:
                time.sleep(rng.expovariate(1 / pause))
for number in range(users):
    threading.Thread(target=user, args=(number,), daemon=True).start()
sys.stdin.read()
'''


class Scorer(nn.Module):
    def __init__(self, width=640, samples=16):
        super().__init__()
        self.samples = samples
        self.words = nn.Embedding(5000, width)
        self.cells = nn.ModuleList([nn.GRUCell(width, width) for _ in range(2)])
        self.head = nn.Linear(width, 6)

    @torch.inference_mode()
    def forward(self, words):
        x = self.words(torch.tensor(words, device="cuda")).expand(self.samples, -1, -1)
        state = [torch.zeros_like(x[:, 0]) for _ in self.cells]
        for word in x.unbind(1):
            for layer, cell in enumerate(self.cells):
                word = state[layer] = cell(word, state[layer])  # FAULT
        return self.head(word).sigmoid().mean(0).tolist()


class Moderation:
    def __init__(self, scorer):
        self.scorer, self.answered, self.helpers = scorer, 0, []

    async def handle(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                scores = self.scorer([int(word) for word in line.split()])
                writer.write(json.dumps([round(s, 3) for s in scores]).encode() + b"\n")
                await writer.drain()
                self.answered += 1
        writer.close()

    def start(self, code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        self.helpers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
        return self.helpers[-1].pid

    async def run(self, seconds, users, packers, cores, seed):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        self.start(USERS, server.sockets[0].getsockname()[1], *users, seed)
        own, others = cores
        os.sched_setaffinity(0, own)
        for work, pause in packers:
            pid = self.start(PACKER, work, pause)
            os.sched_setaffinity(pid, others)
        await asyncio.sleep(0.5)
        self.answered = 0
        await asyncio.sleep(seconds)
        server.close()

    def stop(self):
        for helper in self.helpers:
            helper.kill()
            helper.wait()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    torch.manual_seed(seed)
    scorer = Scorer().cuda().eval()
    for _ in range(20):
        scorer(list(range(96)))
    available = sorted(os.sched_getaffinity(0))
    own = {available[-1 - seed % 2]}
    others = own if mode == "fault" else set(available) - own
    users = (2, 0.0) if mode == "fault" else (1, 0.4)
    packers = [(0.002, 0.0135)] if weak else [(0.05, 0.0)] * 2
    service = Moderation(scorer)
    try:
        asyncio.run(service.run(seconds, users, packers, (own, others), seed))
    finally:
        service.stop()
    print(json.dumps({"steps": service.answered}))


main()
