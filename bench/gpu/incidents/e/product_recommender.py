"""Serves next-product recommendations: an asyncio server whose batches need the shoppers' histories from a store."""
import asyncio, json, struct, subprocess, sys, time

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": ["net-wait"], "culprit": "child:python", "line": "# FAULT", "alt_line": "# ALT"}

BATCH, HISTORY, SHOPPERS, ITEMS = 32, 512, 4096, 20000
WIDTH, LAYERS, HEADS, CONNECTIONS = 1536, 28, 12, 32

STORE = r'''
import hashlib, socket, struct, sys
listener = socket.create_server(("127.0.0.1", 0))
listener.settimeout(30)
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
peer.settimeout(40)
stream = peer.makefile("rwb")
while True:
    head = stream.read(8)
    if len(head) < 8:
        break
    count, depth = struct.unpack("<II", head)
    users = digest = stream.read(4 * count)
    for _ in range(depth):
        digest = hashlib.sha256(digest).digest()
    size = 2 * int(sys.argv[1]) * count
    stream.write((digest + users) * (size // len(digest + users)) + bytes(size % len(digest + users)))
    stream.flush()
'''

CLIENT = r'''
import asyncio, random, struct, sys
port, seed, shoppers, connections, limit = map(int, sys.argv[1:])
rng = random.Random(seed)
async def shopper():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        writer.write(struct.pack("<I", rng.randrange(shoppers)))
        await reader.readexactly(8)
async def everybody():
    await asyncio.gather(*(shopper() for _ in range(connections)))
asyncio.run(asyncio.wait_for(everybody(), limit))
'''

class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    @torch.inference_mode()
    def recommend(self, histories):
        ids = torch.from_numpy(histories.astype(np.int64) % ITEMS).cuda()
        return (self.blocks(self.items(ids))[:, -1] @ self.items.weight.T).argmax(-1).tolist()

class Store:
    async def connect(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def histories(self, users, depth):
        self.writer.write(struct.pack("<II", len(users), depth) + np.asarray(users, np.uint32).tobytes())
        reply = await self.reader.readexactly(2 * HISTORY * len(users))  # FAULT
        return np.frombuffer(reply, np.uint16).reshape(len(users), HISTORY)

class Server:
    def __init__(self, ranker, store):
        self.ranker, self.store, self.cache, self.depth = ranker, store, None, 0
        self.waiting = asyncio.Queue()

    async def connection(self, reader, writer):
        try:
            while True:
                user, = struct.unpack("<I", await reader.readexactly(4))
                answer = asyncio.get_running_loop().create_future()
                self.waiting.put_nowait((user, answer))
                writer.write(struct.pack("<II", user, await answer))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def batch(self):
        asked = [await asyncio.wait_for(self.waiting.get(), 10)]
        while len(asked) < BATCH and not self.waiting.empty():
            asked.append(self.waiting.get_nowait())
        users = [user for user, _ in asked]
        histories = self.cache[users] if self.cache is not None else await self.store.histories(users, self.depth)  # ALT
        items = await asyncio.get_running_loop().run_in_executor(None, self.ranker.recommend, histories)
        for (_, answer), item in zip(asked, items):
            answer.set_result(item)

async def serve(mode, seconds, seed, share, children):
    torch.manual_seed(seed)
    torch.backends.mha.set_fastpath_enabled(False)
    children.append(subprocess.Popen([sys.executable, "-c", STORE, str(HISTORY)], stdout=subprocess.PIPE, text=True))
    with torch.device("cuda"):
        ranker = Ranker().to(torch.bfloat16).eval()
    store = await Store().connect(int(children[0].stdout.readline()))
    server = Server(ranker, store)
    sample = np.random.default_rng(seed).integers(0, ITEMS, (BATCH, HISTORY)).astype(np.uint16)
    for n in range(8):
        if n == 3:
            begin = time.perf_counter()
        ranker.recommend(sample)
    batch_s = (time.perf_counter() - begin) / 5
    begin = time.perf_counter()
    await store.histories([0] * BATCH, 100_000)
    server.depth = round(share * batch_s / ((time.perf_counter() - begin) / 100_000))
    if mode == "healthy":
        server.cache = await store.histories(range(SHOPPERS), 0)
    listener = await asyncio.start_server(server.connection, "127.0.0.1", 0)
    for n in range(2):
        children.append(subprocess.Popen([sys.executable, "-c", CLIENT, *map(str, (
            listener.sockets[0].getsockname()[1], seed + n, SHOPPERS, CONNECTIONS, round(seconds) + 12))], stderr=subprocess.DEVNULL))
    limit = time.perf_counter() + 5
    while server.waiting.qsize() < 2 * CONNECTIONS and time.perf_counter() < limit:
        await asyncio.sleep(0.02)
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        await server.batch()
        steps += 1
    listener.close()
    return steps

def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share, children = 0.09 if sys.argv[4:5] == ["weak"] else 1.0, []
    try:
        steps = asyncio.run(serve(mode, seconds, seed, share, children))
    finally:
        for child in children:
            child.kill()
            child.wait()
    print(json.dumps({"steps": steps}))

main()
