"""Generate many poems at once with a CUDA graph per token and a slowly cooling temperature."""
import json
import math
import sys
import time

import torch
import torch.nn.functional as F

TRUTH = {
    "cause": ["graph-recapture"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
POEMS = 224 + 32 * (SEED % 3)
LENGTH, WIDTH, HEADS, LAYERS, VOCAB = 384, 2048, 16, 8, 16384
HEAD = WIDTH // HEADS


class Poet:
    def __init__(self):
        torch.manual_seed(SEED)

        def weight(rows, cols):
            return torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) / math.sqrt(rows)

        def cache():
            return torch.zeros(POEMS, HEADS, LENGTH, HEAD, device="cuda", dtype=torch.bfloat16)

        self.emb = weight(VOCAB, WIDTH)
        self.layers = [(weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH),
                        weight(4 * WIDTH, WIDTH), cache(), cache()) for _ in range(LAYERS)]
        self.out = weight(WIDTH, VOCAB)
        self.tokens = torch.randint(0, VOCAB, (POEMS,), device="cuda")
        self.slots = torch.arange(LENGTH, device="cuda")
        self.pos = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.noise = -torch.log(-torch.log(torch.rand(POEMS, VOCAB, device="cuda") * 0.999 + 0.0005))
        self.temp = torch.ones((), device="cuda")
        self.pool = torch.cuda.graph_pool_handle()
        self.graph = None

    def token(self, temperature):
        x = self.emb[self.tokens]  # FAULT
        ahead = self.slots > self.pos  # FAULT
        for wqkv, wo, w1, w2, keys, values in self.layers:
            h = F.layer_norm(x, (WIDTH,))  # FAULT
            q, k, v = (h @ wqkv).view(POEMS, 3, HEADS, HEAD).unbind(1)  # FAULT
            keys.index_copy_(2, self.pos, k.unsqueeze(2))  # FAULT
            values.index_copy_(2, self.pos, v.unsqueeze(2))  # FAULT
            score = (q.unsqueeze(2) @ keys.transpose(2, 3)) / math.sqrt(HEAD)  # FAULT
            score = score.masked_fill(ahead, -1e4).softmax(-1)  # FAULT
            x = x + (score @ values).reshape(POEMS, WIDTH) @ wo  # FAULT
            h = F.layer_norm(x, (WIDTH,))  # FAULT
            x = x + F.gelu(h @ w1) @ w2  # FAULT
        logits = (F.layer_norm(x, (WIDTH,)) @ self.out).float()  # FAULT
        self.tokens.copy_((logits / temperature + self.noise).argmax(-1))  # FAULT
        self.pos.add_(1).remainder_(LENGTH)  # FAULT

    def capture(self, temperature):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):  # FAULT
            self.token(temperature)  # ALT
        self.graph = graph  # ALT

    def set_temperature(self, value):
        if MODE == "fault":
            self.capture(value)  # ALT
        else:
            self.temp.fill_(value)


def timed(work, times):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


@torch.no_grad()
def main():
    poet = Poet()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            poet.token(poet.temp)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()

    poet.capture(poet.temp)
    timed(poet.graph.replay, 20)
    replay = timed(poet.graph.replay, 60)
    capture = timed(lambda: poet.capture(poet.temp), 5)
    share = 0.42 if STRENGTH == "strong" else 0.11
    cool_every = max(1, round(capture / replay * (1 - share) / share))
    poet.capture(poet.temp)
    poet.graph.replay()
    torch.cuda.synchronize()

    steps, poem = 0, []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        if steps % cool_every == 0:
            poet.set_temperature(0.7 + 0.5 / (1 + steps % 400 / 100))  # ALT
        poet.graph.replay()
        steps += 1
        if steps % 64 == 0:
            poem.append(poet.tokens[:4].tolist())
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps, "lines": len(poem)}), flush=True)


if __name__ == "__main__":
    main()
