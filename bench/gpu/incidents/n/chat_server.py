"""Chat server with an own small decoder and an asyncio front.

One GPU thread decodes the open conversations token by token (continuous
batching, the whole window is recomputed, no KV cache).  The event loop takes
chat requests and document uploads for retrieval over loopback.

usage: chat_server.py MODE SECONDS SEED [STRENGTH]
"""
TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}
import asyncio
import json
import queue
import random
import struct
import subprocess
import sys
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, WIDTH, LAYERS, HEADS, SLOTS = 8192, 2048, 8, 16, 8

CLIENT = r'''
import asyncio, json, random, struct, sys, time
kind, port, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count, pause = int(sys.argv[4]), float(sys.argv[5])
rng = random.Random(seed)

async def ask(reader, writer, tag, body):
    writer.write(tag + struct.pack(">I", len(body)) + body)
    await writer.drain()
    n = struct.unpack(">I", await reader.readexactly(4))[0]
    return json.loads(await reader.readexactly(n))

async def chatter():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        prompt = [rng.randrange(8000) for _ in range(rng.randint(20, 60))]
        body = json.dumps({"prompt": prompt, "max_tokens": rng.randint(8, 24)}).encode()
        await ask(reader, writer, b"C", body)
        if pause:
            await asyncio.sleep(pause * rng.uniform(0.5, 1.5))

async def uploader():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    vec = [round(rng.random(), 6) for _ in range(count)]
    body = json.dumps({"id": "doc", "vec": vec}).encode()
    while True:
        t0 = time.monotonic()
        await ask(reader, writer, b"D", body)
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - t0)))

async def main():
    if kind == "chat":
        await asyncio.gather(*[chatter() for _ in range(count)])
    else:
        await uploader()

asyncio.run(main())
'''


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)  # ALT
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # ALT
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, WIDTH))  # ALT
        return x + self.down(F.gelu(self.up(self.n2(x))))  # ALT


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.emb(ids)  # ALT
        for block in self.blocks:
            x = block(x)  # ALT
        return self.norm(x[:, -1]) @ self.emb.weight.t()  # ALT


class Engine:
    def __init__(self, model, window, dev):
        self.model, self.window, self.dev = model, window, dev
        self.ids = torch.zeros(SLOTS, window, dtype=torch.long, device=dev)
        self.pending = queue.Queue()
        self.active = {}
        self.stop = threading.Event()
        self.steps = 0
        self.error = None

    def admit(self):
        while len(self.active) < SLOTS:
            try:
                wait = not self.active
                item = self.pending.get(block=wait, timeout=0.2 if wait else None)
            except queue.Empty:
                return
            slot = next(s for s in range(SLOTS) if s not in self.active)
            row = ([0] * self.window + item["prompt"])[-self.window:]
            self.ids[slot] = torch.tensor(row, device=self.dev)  # ALT
            self.active[slot] = item

    def next_tokens(self):
        nxt = self.model(self.ids).argmax(-1)  # ALT
        self.ids = torch.cat([self.ids[:, 1:], nxt[:, None]], dim=1)  # ALT
        return nxt

    def run(self):
        try:
            with torch.no_grad():
                while not self.stop.is_set():
                    self.admit()
                    if not self.active:
                        continue
                    nxt = self.next_tokens()  # ALT
                    tokens = nxt.cpu().tolist()  # FAULT
                    self.steps += 1
                    for slot in list(self.active):
                        item = self.active[slot]
                        item["out"].append(tokens[slot])
                        if len(item["out"]) >= item["max_tokens"]:
                            del self.active[slot]
                            item["loop"].call_soon_threadsafe(item["done"], item["out"])
        except Exception as exc:  # shown at the end
            self.error = repr(exc)


class Server:
    def __init__(self, engine):
        self.engine, self.uploads, self.chats = engine, 0, 0
        self.warm = asyncio.Event()
        self.index = {}

    async def handle(self, reader, writer):
        loop = asyncio.get_running_loop()
        try:
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(struct.unpack(">I", head[1:])[0])
                msg = json.loads(body)
                if head[:1] == b"D":
                    self.index[msg["id"]] = len(msg["vec"])
                    self.uploads += 1
                    self.warm.set()
                    reply = b"{}"
                else:
                    fut = loop.create_future()

                    def done(out, fut=fut):
                        if not fut.done():
                            fut.set_result(out)

                    self.engine.pending.put({"prompt": msg["prompt"], "max_tokens": msg["max_tokens"],
                                             "out": [], "loop": loop, "done": done})
                    self.chats += 1
                    reply = json.dumps({"tokens": await fut}).encode()
                writer.write(struct.pack(">I", len(reply)) + reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


def timed(fn, n=6, warm=2):
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(n):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def upload_size(target_s):
    text = json.dumps({"id": "doc", "vec": [round(random.random(), 6) for _ in range(100_000)]})
    best = 1e9
    for _ in range(4):
        t0 = time.perf_counter()
        doc = json.loads(text)
        del doc
        best = min(best, time.perf_counter() - t0)
    return max(1000, int(100_000 * target_s / best))


async def serve(engine, mode, seconds, seed, share, step_s):
    server = Server(engine)
    front = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    port = front.sockets[0].getsockname()[1]
    if mode == "fault":
        jobs = [("chat", 2 * SLOTS, 0.0), ("docs", upload_size(3.0 * step_s), 2.5 * step_s / share)]
    else:
        jobs = [("chat", 2, 1.6), ("docs", 300, 1.0)]
    clients = []
    thread = threading.Thread(target=engine.run, name="decode", daemon=True)
    thread.start()
    try:
        for i, (kind, count, pause) in enumerate(jobs):
            clients.append(subprocess.Popen([sys.executable, "-c", CLIENT, kind, str(port), str(seed + i),
                                             str(count), str(pause)], stderr=subprocess.DEVNULL))
        try:
            await asyncio.wait_for(server.warm.wait(), 6)
        except asyncio.TimeoutError:
            pass
        first, t0 = engine.steps, time.monotonic()
        while time.monotonic() - t0 < seconds and engine.error is None:
            await asyncio.sleep(min(2.0, max(0.01, seconds - (time.monotonic() - t0))))
            print(f"[{time.monotonic() - t0:5.1f}s] tokens {engine.steps - first} chats {server.chats} "
                  f"uploads {server.uploads}", flush=True)
    finally:
        engine.stop.set()
        thread.join(10)
        for c in clients:
            c.terminate()
        for c in clients:
            c.wait()
        front.close()
    return engine.steps - first, server


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.45 if strength == "strong" else 0.10
    random.seed(seed)
    torch.manual_seed(seed)
    dev = torch.device("cuda")
    with torch.device(dev):
        model = Decoder()
    model = model.to(torch.bfloat16).eval()
    with torch.no_grad():
        probe = torch.zeros(SLOTS, 512, dtype=torch.long, device=dev)
        t = timed(lambda: model(probe))
        window = int(512 * (0.018 + 0.001 * (seed % 5)) / t) // 64 * 64
        window = max(128, min(3072, window))
        engine = Engine(model, window, dev)
        step_s = timed(lambda: engine.next_tokens().cpu())
    print(f"window {window}, {step_s * 1e3:.1f} ms per token", flush=True)
    steps, server = asyncio.run(serve(engine, mode, seconds, seed, share, step_s))
    if engine.error:
        print(engine.error, file=sys.stderr)
    print(json.dumps({"steps": steps, "mode": mode, "chats": server.chats, "uploads": server.uploads,
                      "step_ms": round(step_s * 1e3, 2)}), flush=True)


if __name__ == "__main__":
    main()
