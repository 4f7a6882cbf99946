"""Write dialogue with a small language model: prefill a batch of prompts, then decode with a CUDA graph."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["graph-recapture"],
    "culprit": "self",
    "line": "# FAULT",
    "compound": False,
}
VOCAB, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 16000, 1024, 16, 12, 320, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, keys, values, pos, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        keys.index_copy_(2, pos, k)
        values.index_copy_(2, pos, v)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        self.register_buffer("columns", torch.arange(LENGTH), persistent=False)

    def forward(self, ids, pos, cache):
        mask = self.columns[None, :] <= pos[:, None]
        x = self.words(ids) + self.places(pos)
        for block, (keys, values) in zip(self.blocks, cache):
            x = block(x, keys, values, pos, mask)
        return self.head(self.norm(x[:, -1]))


class Session:
    """The key/value cache of a batch of dialogues and the graph of one decoding step on it."""

    def __init__(self, model, warm=False):
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        self.model = model
        shape = (BATCH, HEADS, LENGTH, WIDTH // HEADS)
        self.cache = [(torch.zeros(shape, **kind), torch.zeros(shape, **kind)) for _ in range(LAYERS)]
        self.ids = torch.zeros(BATCH, 1, dtype=torch.int64, device="cuda")
        self.pos = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.text = torch.zeros(BATCH, LENGTH, dtype=torch.int64, device="cuda")
        if warm:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.advance()
            torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):  # FAULT
            self.advance()  # ALT

    def advance(self):
        word = self.model(self.ids, self.pos, self.cache).argmax(-1, keepdim=True)
        self.ids.copy_(word)
        self.pos.add_(1)
        self.text.index_copy_(1, self.pos, word)

    def write(self, prompt, words):
        n = prompt.shape[1]
        self.text[:, :n].copy_(prompt)
        first = self.model(prompt, self.model.columns[:n], self.cache).argmax(-1, keepdim=True)
        self.ids.copy_(first)
        self.text[:, n:n + 1].copy_(first)
        self.pos.fill_(n)
        for _ in range(words):
            self.graph.replay()


@torch.no_grad()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    model = Writer().to("cuda", torch.bfloat16).eval()
    prompts = [torch.randint(0, VOCAB, (BATCH, 48 + 8 * (i % 3))).pin_memory() for i in range(6)]
    texts = [torch.empty(BATCH, LENGTH, dtype=torch.int64).pin_memory() for _ in range(2)]
    done = [torch.cuda.Event() for _ in range(2)]
    session = Session(model, warm=True)

    def request(i, words, renew):
        nonlocal session
        if renew:
            done[(i + 1) % 2].synchronize()  # nothing runs on the old one
            session = None
            session = Session(model)  # ALT
        session.write(prompts[i % len(prompts)].to("cuda", non_blocking=True), words)
        texts[i % 2].copy_(session.text, non_blocking=True)
        done[i % 2].record()
        done[(i + 1) % 2].synchronize()  # the request before is out
        return texts[(i + 1) % 2][0, 0]

    def timed(count, words, renew):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for i in range(count):
            request(i, words, renew)
        torch.cuda.synchronize()
        return (time.perf_counter() - t0) / count

    timed(4, 16, False)
    short, long = timed(6, 16, False), timed(6, 80, False)
    word_time = max(1e-5, (long - short) / 64)
    timed(1, 16, True)
    capture = max(1e-3, timed(3, 16, True) - short)
    useful = capture * (1.0 - 0.45) / 0.45
    words = int(min(250, max(8, (useful - (short - 16 * word_time)) / word_time)))
    every = 1 if strength == "strong" else 8  # how many requests a session lives
    timed(3, words, False)

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        request(steps, words, renew=mode == "fault" and steps % every == 0)
        steps += 1
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
