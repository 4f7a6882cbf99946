"""Reranks help-desk answers: an asyncio service that keeps every decision in an SQLite file."""
import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["io-wait"], "culprit": "self", "line": "# FAULT"}

TOPICS, CANDIDATES, LENGTH, WIDTH, HEADS, DEPTH, VOCAB, KEPT = 64, 256, 64, 1024, 16, 12, 20000, 32

AGENTS = r'''
import random, socket, sys, threading, time
port, agents, pause, seed = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
def agent(number):
    rng = random.Random(100 * seed + number)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = sock.makefile("rb")
        answer = True
        while answer:
            sock.sendall(b"%d %d\n" % (rng.randrange(64), rng.randrange(20000)))
            answer = answers.readline()
            time.sleep(rng.expovariate(1 / pause) if pause else 0)
for number in range(agents):
    threading.Thread(target=agent, args=(number,), daemon=True).start()
sys.stdin.read()
'''


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Reranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.head = nn.Linear(WIDTH, 1)
        self.register_buffer("answers", torch.randint(VOCAB, (TOPICS, CANDIDATES, LENGTH)))

    @torch.inference_mode()
    def rank(self, topic, word):
        x = self.words(self.answers[topic]) + self.words.weight[word]
        scores = self.head(self.blocks(x).mean(1)).squeeze(1).float()
        best = scores.topk(KEPT)
        places, values = torch.stack((best.indices.float(), best.values)).tolist()
        return [(topic, int(place), value) for place, value in zip(places, values)]


class DecisionLog:
    def __init__(self, folder):
        self.db = sqlite3.connect(f"{folder}/decisions.db", check_same_thread=False)
        self.db.execute("create table decision (topic integer, candidate integer, score real)")
        self.waiting, self.commits_per_request, self.due = [], 0.0, 0.0

    def save(self, rows):
        self.db.executemany("insert into decision values (?, ?, ?)", rows)
        self.db.commit()  # FAULT

    def add(self, rows):
        self.waiting += rows
        self.due += self.commits_per_request
        parts, self.due = min(int(self.due), KEPT), self.due % 1.0
        for part in range(parts):
            self.save(self.waiting[part::parts])
        self.waiting = [] if parts else self.waiting

    async def save_now_and_then(self, every_s):
        while True:
            await asyncio.sleep(every_s)
            rows, self.waiting = self.waiting, []
            if rows:
                await asyncio.to_thread(self.save, rows)


class Service:
    def __init__(self, reranker, log):
        self.reranker, self.log, self.answered = reranker, log, 0

    async def handle(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                ranking = self.reranker.rank(*map(int, line.split()))
                self.log.add(ranking)
                writer.write(json.dumps([place for _, place, _ in ranking[:5]]).encode() + b"\n")
                await writer.drain()
                self.answered += 1
        writer.close()

    async def run(self, seconds, agents, pause, seed, in_background):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        if in_background:
            self.saver = asyncio.create_task(self.log.save_now_and_then(3.0))
        command = [sys.executable, "-c", AGENTS, *map(str, (server.sockets[0].getsockname()[1], agents, pause, seed))]
        desk = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            await asyncio.sleep(0.5)
            self.answered = 0
            await asyncio.sleep(seconds)
        finally:
            desk.kill()
            desk.wait()
            server.close()


def seconds_each(count, action):
    begin = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 0.9
    torch.manual_seed(seed)
    with torch.device("cuda"):
        reranker = Reranker().bfloat16().eval()
    seconds_each(10, lambda: reranker.rank(0, 1))
    with tempfile.TemporaryDirectory(dir=".", prefix="decisions-") as folder:
        log = DecisionLog(folder)
        if mode == "fault":
            save_s = seconds_each(20, lambda: log.save([(0, 0, 0.0)]))
            log.commits_per_request = share * seconds_each(20, lambda: reranker.rank(2, 3)) / save_s
        service, agents = Service(reranker, log), (3, 0.0) if mode == "fault" else (1, 0.5)
        asyncio.run(service.run(seconds, *agents, seed, mode == "healthy"))
        log.db.close()
    print(json.dumps({"steps": service.answered}))


main()
