"""Chat decoding with a hand-written key/value cache; one token step is a CUDA graph."""
import json
import random
import sys
import time

import torch
import torch.nn.functional as F

TRUTH = {"cause": ["graph-recapture"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

BATCH, WIDTH, HEADS, LAYERS, VOCAB, ROOM, PROMPT = 64, 2048, 16, 12, 32000, 1024, 512


class Layer:
    def __init__(self):
        def matrix(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / rows ** 0.5
        self.qkv, self.out = matrix(WIDTH, 3 * WIDTH), matrix(WIDTH, WIDTH)
        self.up, self.down = matrix(WIDTH, 4 * WIDTH), matrix(4 * WIDTH, WIDTH)
        shape = (BATCH, HEADS, ROOM, WIDTH // HEADS)
        self.keys = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        self.values = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def __call__(self, x, at, seen):
        q, k, v = (F.rms_norm(x, (WIDTH,)) @ self.qkv).view(BATCH, 3, HEADS, 1, -1).unbind(1)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        mixed = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + mixed.reshape(BATCH, WIDTH) @ self.out
        return x + F.silu(F.rms_norm(x, (WIDTH,)) @ self.up) @ self.down


class Decoder:
    def __init__(self, seed, temperature_in_graph):
        torch.manual_seed(seed)
        self.temperature_in_graph = temperature_in_graph
        self.embedding = torch.randn(VOCAB, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.tokens = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.at = torch.full((1,), PROMPT, dtype=torch.long, device="cuda")
        self.slots = torch.arange(ROOM, device="cuda").view(1, 1, 1, ROOM)
        self.temperature = torch.ones((), device="cuda")
        self.graph, self.captured_for = None, None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.token_step(self.temperature)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def token_step(self, temperature):
        x, seen = self.embedding[self.tokens], self.slots <= self.at
        for layer in self.layers:
            x = layer(x, self.at, seen)
        logits = (F.rms_norm(x, (WIDTH,)) @ self.embedding.T).float() / temperature
        race = torch.empty_like(logits).exponential_()
        self.tokens.copy_((logits.softmax(-1) / race).argmax(-1))
        self.at += 1

    def capture(self, temperature):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):  # FAULT
            self.token_step(temperature)  # ALT

    def prepare(self, temperature):
        if self.temperature_in_graph:
            if temperature != self.captured_for:
                self.capture(temperature)
                self.captured_for = temperature
        else:
            if self.graph is None:
                self.capture(self.temperature)
            self.temperature.fill_(temperature)

    def reply(self, temperature, length):
        self.at.fill_(PROMPT)
        self.prepare(temperature)
        for _ in range(length):
            self.graph.replay()
        return self.tokens.tolist()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    torch.set_grad_enabled(False)
    decoder = Decoder(seed, mode == "fault")
    rng, length = random.Random(seed), 64
    decoder.reply(1.0, 32)
    begin = time.perf_counter()
    decoder.reply(1.0, 64)
    token_s = (time.perf_counter() - begin) / 64
    if mode == "fault":
        begin = time.perf_counter()
        for n in range(5):
            decoder.reply(0.5 + n / 100, 1)
        capture_s = (time.perf_counter() - begin) / 5 - token_s
        length = min(ROOM - PROMPT - 1, max(1, round((9.0 if weak else 1.3) * capture_s / token_s)))

    replies, tokens, end = 0, 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        last = decoder.reply(round(rng.uniform(0.3, 1.2), 6), length)
        replies, tokens = replies + 1, tokens + length
    print(f"{replies} replies of {length} tokens, last token {last[0]}")
    print(json.dumps({"steps": tokens}))


main()
