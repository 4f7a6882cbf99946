"""Recognises speech for a dictation service: a threaded TCP server, one model, and a table of hot words."""
import json, queue, socketserver, subprocess, sys, threading, time
from concurrent.futures import Future

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": ["lock-wait"], "culprit": "thread", "line": "# FAULT", "alt_line": "# ALT"}

SAMPLES, FRAME, HOP, BATCH, SPEAKERS = 80_000, 200, 80, 16, 16
WIDTH, LAYERS, HEADS, TOKENS = 1280, 36, 20, 1024

CLIENT = r'''
import os, socket, sys, threading
port, samples, speakers = map(int, sys.argv[1:])
def speak():
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        audio = os.urandom(samples)
        while True:
            line.sendall(audio)
            if len(line.recv(4, socket.MSG_WAITALL)) < 4:
                return
threads = [threading.Thread(target=speak, daemon=True) for _ in range(speakers)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(40)
'''

class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.Linear(FRAME, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)

    @torch.inference_mode()
    def transcribe(self, sounds, favourite):
        audio = torch.frombuffer(bytearray(b"".join(sounds)), dtype=torch.uint8).view(len(sounds), -1).cuda()
        frames = ((audio.to(torch.bfloat16) - 128) / 128).unfold(1, FRAME, HOP)
        logits = self.head(self.layers(self.frames(frames)))
        logits[:, :, favourite % TOKENS] += 1
        return logits.argmax(-1).sum(1).tolist()

class HotWords(threading.Thread):
    def __init__(self, seed, hold):
        super().__init__(name="hotwords", daemon=True)
        self.words = np.random.default_rng(seed).integers(0, 1 << 60, (16, 100_000))
        self.tables, self.lock, self.done = [np.sort(words) for words in self.words], threading.Lock(), threading.Event()
        self.hold, self.rounds, self.pause_s = hold, 1, 0.1

    def rebuild(self, rounds):
        tables = list(self.tables)
        for n in range(rounds):
            tables[n % 16] = np.sort(self.words[n % 16] ^ n)  # ALT
        return tables

    def run(self):
        while not self.done.wait(self.pause_s):
            if self.hold:
                with self.lock:
                    self.tables = self.rebuild(self.rounds)  # ALT
            else:
                tables = self.rebuild(self.rounds)
                with self.lock:
                    self.tables = tables

    def favourite(self, sounds):
        with self.lock:  # FAULT
            return sum(int(np.searchsorted(self.tables[sound[0] % 16], sound[1] << 52)) for sound in sounds)

class Speaker(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            while len(sound := self.rfile.read(SAMPLES)) == SAMPLES:
                answer = Future()
                self.server.waiting.put((sound, answer))
                self.wfile.write(answer.result(timeout=20).to_bytes(4, "little"))
        except (OSError, TimeoutError):
            pass

class Service(socketserver.ThreadingTCPServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Speaker)
        self.waiting = queue.Queue()

    def take(self):
        asked = [self.waiting.get(timeout=10)]
        while len(asked) < BATCH and not self.waiting.empty():
            asked.append(self.waiting.get())
        return asked

def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times

def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    held, free = (1.5, 8.5) if sys.argv[4:5] == ["weak"] else (2.5, 1.5)       # in batches
    torch.manual_seed(seed)
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.device("cuda"):
        recogniser = Recogniser().to(torch.bfloat16).eval()
    words, service = HotWords(seed, hold=mode == "fault"), Service()
    sounds = [np.random.default_rng(n).bytes(SAMPLES) for n in range(BATCH)]
    timed(lambda: recogniser.transcribe(sounds, 1), 4)
    batch_s = timed(lambda: recogniser.transcribe(sounds, 1), 6)
    words.rounds = max(1, round(held * batch_s / timed(lambda: words.rebuild(64), 1) * 64))
    words.pause_s = free * batch_s
    threading.Thread(target=service.serve_forever, name="accept", daemon=True).start()
    arguments = [str(n) for n in (service.server_address[1], SAMPLES, SPEAKERS)]
    clients = [subprocess.Popen([sys.executable, "-c", CLIENT, *arguments], stderr=subprocess.DEVNULL) for _ in range(2)]
    limit = time.perf_counter() + 5
    while service.waiting.qsize() < 2 * SPEAKERS and time.perf_counter() < limit:
        time.sleep(0.02)
    words.start()
    steps, end = 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            asked = service.take()
            spoken = [sound for sound, _ in asked]
            for (_, answer), text in zip(asked, recogniser.transcribe(spoken, words.favourite(spoken))):  # ALT
                answer.set_result(text)
            steps += 1
    finally:
        words.done.set()
        for client in clients:
            client.kill()
            client.wait()
        service.shutdown()
        words.join(5)
    print(json.dumps({"steps": steps}))

main()
