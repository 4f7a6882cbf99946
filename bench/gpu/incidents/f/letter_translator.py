"""Translates letters over HTTP: a threaded server, one model, and a thread that keeps the glossary of word pairs."""
import json, queue, random, subprocess, sys, threading, time
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "alt_line": "# ALT"}

LETTERS, LENGTH, BATCH = 8, 384, 4              # letters of a request, bytes of a letter, requests of a batch
WIDTH, LAYERS, HEADS = 2048, 16, 16

CLIENT = r'''
import http.client, random, sys, threading, time
port, writers, seed, size = map(int, sys.argv[1:5])
think = float(sys.argv[5])
def write(number):
    rng = random.Random(seed * 100 + number)
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    while True:
        if think:
            time.sleep(rng.expovariate(1 / think))
        line.request("POST", "/translate", rng.randbytes(size))
        line.getresponse().read()
for number in range(writers):
    threading.Thread(target=write, args=(number,)).start()
'''

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        parts = self.mix(self.before(x)).view(len(x), LENGTH, 3, HEADS, -1).permute(2, 0, 3, 1, 4)  # ALT
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])  # ALT
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))  # ALT
        return x + self.down(F.gelu(self.up(self.between(x))))  # ALT

class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.head = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))

    @torch.inference_mode()
    def translate(self, bodies, bias):
        raw = torch.frombuffer(bytearray(b"".join(bodies)), dtype=torch.uint8).view(-1, LENGTH)
        logits = self.head(self.blocks(self.letters(raw.cuda().int())))  # ALT
        logits[:, :, bias % 256] += 1
        text = logits.argmax(-1).to(torch.uint8).cpu().numpy().tobytes()  # ALT
        size = LETTERS * LENGTH
        return [text[n * size:(n + 1) * size] for n in range(len(bodies))]

class Glossary(threading.Thread):
    """Counts which word follows which in the archive."""

    def __init__(self, seed):
        super().__init__(name="glossary", daemon=True)
        rng = random.Random(seed)
        words = ["".join(rng.choices("aeioulnrst", k=rng.randint(2, 9))) for _ in range(400)]
        self.archive = [" ".join(rng.choices(words, k=400)) for _ in range(200)]
        self.pairs, self.rounds, self.pause_s, self.done = {}, 1, 0.1, threading.Event()

    def count(self, rounds):
        pairs = {}
        for number in range(rounds):  # ALT
            words = self.archive[number % len(self.archive)].split()  # FAULT
            for pair in zip(words, words[1:]):  # FAULT
                pairs[pair] = pairs.get(pair, 0) + 1  # FAULT
        return pairs

    def run(self):
        while not self.done.wait(self.pause_s):
            self.pairs = self.count(self.rounds)  # ALT

class Desk(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def do_POST(self):
        answer = Future()
        self.server.waiting.put((self.rfile.read(int(self.headers["Content-Length"])), answer))
        text = answer.result(timeout=20)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    log_message = lambda *_: None

class Service(ThreadingHTTPServer):
    request_queue_size, waiting, handle_error = 64, queue.Queue(), lambda *_: None

    def take(self):
        first = self.waiting.get(timeout=15)
        return [first, *(self.waiting.get() for _ in range(min(BATCH - 1, self.waiting.qsize())))]

def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times

def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    busy, free = (1.5, 8.5) if sys.argv[4:5] == ["weak"] else (2.5, 1.5)       # in batches
    torch.manual_seed(seed)
    with torch.device("cuda"):
        translator = Translator().to(torch.bfloat16).eval()
    glossary, service, rng = Glossary(seed), Service(("127.0.0.1", 0), Desk), random.Random(seed)
    sample = [rng.randbytes(LETTERS * LENGTH) for _ in range(BATCH)]
    timed(lambda: translator.translate(sample, 1), 4)
    batch_s = timed(lambda: translator.translate(sample, 1), 6)
    if mode == "fault":         # the whole archive again; else only what came in since
        glossary.rounds = max(1, round(busy * batch_s / timed(lambda: glossary.count(512), 2) * 512))
    glossary.pause_s = free * batch_s
    threading.Thread(target=service.serve_forever, name="accept", daemon=True).start()
    writers, think = (12, 0) if mode == "fault" else (2, 0.8)
    clients = [subprocess.Popen([sys.executable, "-c", CLIENT, *map(str, (
        service.server_address[1], writers, seed + n, LETTERS * LENGTH, think))], stderr=subprocess.DEVNULL) for n in range(2)]
    glossary.start()
    steps, end = 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            asked = service.take()
            for (_, answer), text in zip(asked, translator.translate([body for body, _ in asked], len(glossary.pairs))):  # ALT
                answer.set_result(text)
            steps += 1
    finally:
        glossary.done.set()
        for client in clients:
            client.kill()
            client.wait()
    print(json.dumps({"steps": steps}))

main()
