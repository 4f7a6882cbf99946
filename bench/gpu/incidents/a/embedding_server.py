"""Bulk text-embedding server: blocking sockets, a thread pool, and a thread that copies new rows to a replica."""
import collections, json, random, socket, sys, threading, time
import multiprocessing as mp
from concurrent.futures import ThreadPoolExecutor

import numpy as np

TRUTH = {
    "cause": ["lock-wait"],
    "culprit": "thread",
    "line": "# FAULT",
    "alt_line": "# ALT",  # where the request threads wait for the lock
    "compound": False,
}
DIM, VOCAB = 1024, 30000


def replica(conn):
    while conn.recv(1 << 16):
        pass


def client(port, seed, go):
    rng = random.Random(seed)
    go.wait()
    while True:
        time.sleep(rng.expovariate(1 / 0.8))
        with socket.create_connection(("127.0.0.1", port)) as s, s.makefile("rwb") as f:
            f.write(json.dumps({"key": rng.randrange(10**6), "texts": rng.randint(40, 52)}).encode() + b"\n")
            f.flush()
            f.readline()


class EmbeddingServer:
    def __init__(self, seed, link):
        import torch
        self.torch = torch
        torch.manual_seed(seed)
        torch.backends.mha.set_fastpath_enabled(False)
        nn = torch.nn
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, dropout=0.0, activation="gelu", batch_first=True)
        self.table = nn.Embedding(VOCAB, DIM).to("cuda", torch.bfloat16)
        self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to("cuda", torch.bfloat16).eval()
        self.tokens = 384 + 32 * (seed % 3)
        self.lock = threading.Lock()  # guards the model and the cache
        self.cache = collections.OrderedDict((-i, bytes(4 * DIM)) for i in range(64))
        self.link, self.served, self.stopping = link, 0, threading.Event()

    def encode(self, ids):
        with self.torch.inference_mode():
            x = self.encoder(self.table(self.torch.from_numpy(ids).cuda()))
            return self.torch.nn.functional.normalize(x.mean(1).float(), dim=-1).cpu().numpy()

    def handle(self, conn):
        try:
            with conn, conn.makefile("rwb") as f:
                req = json.loads(f.readline())
                ids = np.random.default_rng(req["key"]).integers(0, VOCAB, (req["texts"], self.tokens))
                with self.lock:  # ALT
                    vectors = self.encode(ids)
                    self.cache[req["key"]] = vectors[0].tobytes()
                    while len(self.cache) > 256:
                        self.cache.popitem(last=False)
                f.write(json.dumps({"n": len(vectors), "head": vectors[0, :8].tolist()}).encode() + b"\n")
                f.flush()
            self.served += 1
        except (ConnectionError, ValueError):
            pass

    def push(self, rows, duration):
        """Send rows to the replica, evenly spread over `duration` (the link is rate limited)."""
        for _, data in rows:
            self.link.sendall(data)
            time.sleep(duration / len(rows))

    def replicate(self, pause, duration, copy_first):
        while not self.stopping.wait(pause):
            if copy_first:
                with self.lock:
                    rows = list(self.cache.items())[-32:]
                self.push(rows, duration)
            else:
                with self.lock:
                    self.push(list(self.cache.items())[-32:], duration)  # FAULT

    def serve(self, listener, seconds):
        listener.settimeout(0.2)
        end = time.time() + seconds
        with ThreadPoolExecutor(max_workers=8) as pool:
            while time.time() < end:
                try:
                    conn, _ = listener.accept()
                except socket.timeout:
                    continue
                pool.submit(self.handle, conn)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    near, far = socket.socketpair()
    ctx = mp.get_context("fork")
    go, port = ctx.Event(), listener.getsockname()[1]
    children = [ctx.Process(target=replica, args=(far,), daemon=True)]
    children += [ctx.Process(target=client, args=(port, seed * 10 + i, go), daemon=True) for i in range(5)]
    for c in children:
        c.start()
    try:
        server = EmbeddingServer(seed, near)
        for n in (40, 46, 52, 48):
            server.encode(np.random.default_rng(n).integers(0, VOCAB, (n, server.tokens)))
        pause, duration = (0.1, 0.25) if strength == "strong" else (0.45, 0.06)
        sync = threading.Thread(target=server.replicate, args=(pause, duration, mode == "healthy"), name="replicate")
        sync.start()
        go.set()
        server.serve(listener, seconds)
        server.stopping.set()
        sync.join()
    finally:
        for c in children:
            c.kill()
            c.join()
    print(json.dumps({"steps": server.served}))


if __name__ == "__main__":
    main()
