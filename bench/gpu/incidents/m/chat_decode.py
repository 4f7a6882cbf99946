"""Chat server: users send turns, the decoder answers with replayed CUDA graphs.

usage: chat_decode.py MODE SECONDS SEED [STRENGTH]
"""
import json
import queue
import random
import sys
import threading
import time

import torch
import torch.nn.functional as F

TRUTH = {"cause": ["graph-recapture"], "culprit": "self", "line": "# FAULT", "compound": False}

DEV, BF16 = "cuda", torch.bfloat16
DIM, HEADS, LAYERS, VOCAB, CONTEXT, CHUNK = 4096, 32, 8, 16384, 512, 4


def weight(*shape):
    return torch.randn(*shape, device=DEV, dtype=BF16) * shape[0] ** -0.5


class Decoder:
    """Greedy decoder with a key/value cache; a graph holds CHUNK tokens."""

    def __init__(self, rows):
        self.rows, self.hd = rows, DIM // HEADS
        self.embed = torch.randn(VOCAB, DIM, device=DEV, dtype=BF16)
        self.layers = [(weight(DIM, 3 * DIM), weight(DIM, DIM), weight(DIM, 4 * DIM),
                        weight(4 * DIM, DIM)) for _ in range(LAYERS)]
        self.keys = torch.zeros(LAYERS, rows, HEADS, CONTEXT, self.hd, device=DEV, dtype=BF16)
        self.values = torch.zeros_like(self.keys)
        self.slots = torch.arange(CONTEXT, device=DEV)
        self.ids = torch.zeros(rows, dtype=torch.long, device=DEV)
        self.pos = torch.zeros(1, dtype=torch.long, device=DEV)
        self.stream = torch.cuda.Stream()
        self.graphs, self.session, self.length = {}, 0, 0
        self.block = None  # None: one graph over the whole padded context

    def token(self, window):
        x = F.embedding(self.ids, self.embed)  # ALT
        ahead = self.slots[:window] > self.pos  # ALT
        for i, (qkv, out, up, down) in enumerate(self.layers):  # ALT
            h = F.layer_norm(x, (DIM,))  # ALT
            q, k, v = (h @ qkv).view(self.rows, 3, HEADS, self.hd).unbind(1)  # ALT
            self.keys[i].index_copy_(2, self.pos, k.unsqueeze(2))  # ALT
            self.values[i].index_copy_(2, self.pos, v.unsqueeze(2))  # ALT
            att = q.unsqueeze(2) @ self.keys[i][:, :, :window].transpose(2, 3)  # ALT
            att = (att * self.hd ** -0.5).masked_fill(ahead, float("-inf")).softmax(-1)  # ALT
            x = x + (att @ self.values[i][:, :, :window]).reshape(self.rows, DIM) @ out  # ALT
            x = x + F.gelu(F.layer_norm(x, (DIM,)) @ up) @ down  # ALT
        self.ids.copy_((F.layer_norm(x, (DIM,)) @ self.embed.t()).argmax(-1))  # ALT
        self.pos.add_(1)  # ALT

    def record(self, window):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):  # FAULT
            for _ in range(CHUNK):  # FAULT
                self.token(window)  # FAULT
        return graph

    def advance(self):
        """Decode the next CHUNK tokens."""
        if self.length + CHUNK > CONTEXT:
            self.session, self.length = self.session + 1, 0
            self.pos.zero_()
        if self.block is None:
            key, window = "all", CONTEXT
        else:
            key = (self.session, self.length // self.block)
            window = min(CONTEXT, (key[1] + 1) * self.block)
        if key not in self.graphs:
            fresh = self.record(window)  # ALT
            self.graphs.clear()  # ALT
            self.graphs[key] = fresh
        self.graphs[key].replay()
        self.length += CHUNK

    def answer(self, turn, chunks):
        self.ids.copy_(torch.tensor(turn))
        for _ in range(chunks):
            self.advance()
        return self.ids.tolist()


def user(me, inbox, mailbox, rows, think, stop, seed):
    """One chat user: sends a turn, reads the answer, thinks."""
    rng = random.Random(seed * 100 + me)
    while not stop.is_set():
        inbox.put((me, [rng.randrange(VOCAB) for _ in range(rows)]))
        if mailbox.get() is None:
            break
        if think:
            stop.wait(rng.expovariate(1.0 / think))


@torch.no_grad()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.45 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.115
    torch.manual_seed(seed)
    rows = random.Random(seed).choice([14, 16, 18])
    dec = Decoder(rows)

    # warm up on the stream that records, then time a chunk and a recording
    with torch.cuda.stream(dec.stream):
        for _ in range(3):
            dec.token(CONTEXT)
            dec.token(CONTEXT // 2)
    torch.cuda.synchronize()
    dec.pos.zero_()
    graph = dec.record(CONTEXT if mode == "healthy" else CONTEXT // 2)

    def chunk_time(span):
        n, t0 = 0, time.perf_counter()
        while time.perf_counter() - t0 < span:
            dec.pos.zero_()
            for _ in range(8):
                graph.replay()
            torch.cuda.synchronize()
            n += 8
        return (time.perf_counter() - t0) / n

    chunk_time(0.8)
    chunk = chunk_time(1.0)
    chunks = max(3, round(0.036 / chunk))
    if mode == "fault":
        del graph
        spent, times = 0.0, 10
        for i in range(times + 2):
            dec.pos.zero_()
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            dec.graphs.clear()
            dec.graphs[i] = dec.record(CONTEXT // 2 + 4 * i)
            dec.graphs[i].replay()
            torch.cuda.synchronize()
            if i >= 2:
                spent += time.perf_counter() - t0 - chunk
        cost = max(spent / times, 1e-4)
        dec.block = CHUNK * max(1, round(cost / (chunk * share / (1 - share))))
        dec.graphs.clear()
    else:
        cost = 0.0
        dec.graphs["all"] = graph
    dec.pos.zero_()

    stop, inbox = threading.Event(), queue.Queue()
    people = 4 if mode == "fault" else 1
    think = 0.0 if mode == "fault" else 5 * chunk * chunks
    mailboxes = [queue.Queue() for _ in range(people)]
    threads = [threading.Thread(target=user, daemon=True,
                                args=(i, inbox, mailboxes[i], rows, think, stop, seed))
               for i in range(people)]
    for t in threads:
        t.start()

    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        try:
            who, turn = inbox.get(timeout=0.5)
        except queue.Empty:
            continue
        mailboxes[who].put(dec.answer(turn, chunks))
        steps += 1
    wall = time.perf_counter() - start
    stop.set()
    for box in mailboxes:
        box.put(None)
    for t in threads:
        t.join(2)
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / max(1, steps),
                      "gpu_step_ms": 1e3 * chunk * chunks, "record_ms": 1e3 * cost,
                      "block": dec.block, "chunks": chunks, "rows": rows}))


if __name__ == "__main__":
    main()
