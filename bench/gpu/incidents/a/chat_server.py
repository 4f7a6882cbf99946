"""Chat completion server (asyncio): fetches the session history, prefills, samples several answers with a KV cache."""
import asyncio, json, random, socket, socketserver, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor

TRUTH = {
    "cause": ["net-wait"],
    "culprit": "child:session-store",
    "line": "# FAULT",
    "alt_line": "# ALT",  # the late peer
    "compound": False,
}
VOCAB, NEW, CTX = 32000, 16, 1040


def session_store(delay):
    """Stand-in for the session database: one JSON line in, the history of that user out."""
    with open("/proc/self/comm", "w") as f:
        f.write("session-store")
    rng = random.Random(1)
    table = [[rng.randrange(VOCAB) for _ in range(880)] for _ in range(64)]

    class Lookup(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                time.sleep(delay * rng.uniform(0.8, 1.2))  # ALT
                self.wfile.write(json.dumps(table[json.loads(line)["user"] % 64]).encode() + b"\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Lookup)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def client(port, seed):
    rng = random.Random(seed)
    while True:
        time.sleep(rng.expovariate(1 / 1.2))
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(40, 120))]
        with socket.create_connection(("127.0.0.1", port)) as s, s.makefile("rwb") as f:
            f.write(json.dumps({"user": rng.randrange(1000), "prompt": prompt}).encode() + b"\n")
            f.flush()
            f.readline()


def build_engine(seed, d=4096, heads=32, layers=2):
    import torch
    import torch.nn.functional as F
    torch.manual_seed(seed)
    samples, opts = 88 + 4 * (seed % 4), {"device": "cuda", "dtype": torch.bfloat16}
    shapes = {"qkv": (3 * d, d), "out": (d, d), "up": (4 * d, d), "down": (d, 4 * d)}
    emb = torch.randn(VOCAB, d, **opts)
    weights = [{n: torch.randn(*s, **opts) * 0.01 for n, s in shapes.items()} for _ in range(layers)]
    caches = [torch.zeros(2, samples, heads, CTX, d // heads, **opts) for _ in range(layers)]

    def layer(x, w, cache, pos):
        b, t, _ = x.shape
        q, k, v = F.linear(F.layer_norm(x, (d,)), w["qkv"]).view(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4).unbind(0)
        cache[0, :, :, pos:pos + t] = k
        cache[1, :, :, pos:pos + t] = v
        if t == 1:
            k, v = cache[0, :, :, :pos + 1], cache[1, :, :, :pos + 1]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + F.linear(a.transpose(1, 2).reshape(b, t, d), w["out"])
        return x + F.linear(F.gelu(F.linear(F.layer_norm(x, (d,)), w["up"])), w["down"])

    @torch.inference_mode()
    def generate(tokens):
        ids, pos, out = torch.tensor([tokens[-(CTX - NEW):]]).cuda(), 0, []
        for _ in range(NEW):  # the first round is the prefill, shared by all samples
            x = F.embedding(ids, emb)
            for w, cache in zip(weights, caches):
                x = layer(x, w, cache, pos)
            pos += ids.shape[1]
            logits = F.linear(F.layer_norm(x[:, -1], (d,)), emb).float() / d ** 0.5
            ids = torch.multinomial(torch.softmax(logits, -1).expand(samples, -1), 1)
            out.append(ids)
        return torch.cat(out, 1)[0].tolist()

    return generate


class App:
    def __init__(self, generate, store_port):
        self.generate, self.served = generate, 0
        self.gpu = ThreadPoolExecutor(max_workers=1)
        self.store = socket.create_connection(("127.0.0.1", store_port))
        self.replies = self.store.makefile("rb")

    def answer(self, req):
        self.store.sendall(json.dumps({"user": req["user"]}).encode() + b"\n")
        history = json.loads(self.replies.readline())  # FAULT
        return self.generate(history + req["prompt"])

    async def handle(self, reader, writer):
        try:
            req = json.loads(await reader.readline())
            tokens = await asyncio.get_running_loop().run_in_executor(self.gpu, self.answer, req)
            writer.write(json.dumps({"tokens": tokens}).encode() + b"\n")
            await writer.drain()
            self.served += 1
        except (ConnectionError, ValueError):
            pass
        finally:
            writer.close()

    async def serve(self, seconds, seed):
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        args = [sys.executable, __file__, "--client", str(server.sockets[0].getsockname()[1])]
        clients = [subprocess.Popen(args + [str(seed * 10 + i)]) for i in range(4)]
        try:
            await asyncio.sleep(seconds)
        finally:
            for c in clients:
                c.kill()
                c.wait()
            server.close()


def main(mode, seconds, seed, strength="strong"):
    generate = build_engine(int(seed))
    for _ in range(6):  # warm-up; the last one tells how long a request takes
        t0 = time.perf_counter()
        generate([7] * 960)
    delay = (time.perf_counter() - t0) * (0.0 if mode == "healthy" else 0.11 if strength == "weak" else 2.5)
    store = subprocess.Popen([sys.executable, __file__, "--store", str(delay)], stdout=subprocess.PIPE, text=True)
    try:
        app = App(generate, int(store.stdout.readline()))
        asyncio.run(app.serve(float(seconds), int(seed)))
        app.gpu.shutdown(wait=True, cancel_futures=True)
    finally:
        store.kill()
        store.wait()
    print(json.dumps({"steps": app.served}))


if __name__ == "__main__":
    if sys.argv[1] == "--store":
        session_store(float(sys.argv[2]))
    elif sys.argv[1] == "--client":
        client(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
