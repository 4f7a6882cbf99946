"""Land-cover maps over HTTP: a thread pool segments scenes on the GPU and keeps the maps in a shared cache."""
import contextlib
import http.server
import json
import socketserver
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["lock-wait"], "culprit": "thread", "line": "# FAULT", "alt_line": "# ALT"}

SCENES, TILES, SIDE, CHANNELS, DEPTH, CLASSES = 256, 8, 128, 256, 24, 10

VIEWERS = r'''
import http.client, random, sys, threading
port, viewers, seed = map(int, sys.argv[1:4])
def viewer(number):
    rng, link = random.Random(50 * seed + number), http.client.HTTPConnection("127.0.0.1", port)
    while True:
        link.request("GET", "/scene/%d" % rng.randrange(256))
        link.getresponse().read()
for number in range(viewers):
    threading.Thread(target=viewer, args=(number,), daemon=True).start()
sys.stdin.read()
'''


class Segmenter:
    def __init__(self, seed):
        torch.manual_seed(seed)
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        self.pixels = torch.randn(TILES + SCENES, CHANNELS, SIDE, SIDE, **kind)
        self.pixels = self.pixels.to(memory_format=torch.channels_last)
        self.convs = [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, **kind).to(memory_format=torch.channels_last)
                      for _ in range(DEPTH)]
        self.head = nn.Conv2d(CHANNELS, CLASSES, 1, **kind)

    @torch.inference_mode()
    def segment(self, scene):
        x = self.pixels[scene:scene + TILES]
        for conv in self.convs:
            x = F.relu(conv(x), inplace=True)
        return self.head(x).argmax(1).to(torch.uint8).cpu().numpy()


class MapCache:
    def __init__(self, pack_under_lock):
        self.lock, self.pack_under_lock = threading.Lock(), pack_under_lock
        self.maps, self.packed = {}, {}

    def remember(self, scene, labels):
        with self.lock:  # FAULT
            self.maps[scene] = labels.tobytes()

    def pack(self, count):
        scenes = list(self.maps)
        for n in range(count):
            self.packed[n] = zlib.compress(self.maps[scenes[n % len(scenes)]], 6)  # ALT

    def tidy(self, count):
        with self.lock if self.pack_under_lock else contextlib.nullcontext():
            self.pack(count)


class MapServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    def __init__(self, segmenter, cache):
        super().__init__(("127.0.0.1", 0), MapHandler)
        self.segmenter, self.cache, self.answered = segmenter, cache, 0
        self.pool = ThreadPoolExecutor(4, "maps")

    def process_request(self, request, client_address):
        self.pool.submit(self.process_request_thread, request, client_address)

    def handle_error(self, request, client_address):
        pass

    def answer(self, scene):
        labels = self.segmenter.segment(scene)
        self.cache.remember(scene, labels)
        areas = np.bincount(labels.ravel(), minlength=CLASSES)
        self.answered += 1
        return json.dumps({"scene": scene, "areas": areas.tolist()}).encode()


class MapHandler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1

    def do_GET(self):
        body = self.server.answer(int(self.path.rsplit("/", 1)[1]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def tidy_regularly(cache, count, pause_s, done):
    while not done.wait(pause_s):
        cache.tidy(count)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    segmenter, cache = Segmenter(seed), MapCache(pack_under_lock=mode == "fault")
    for scene in range(32):
        cache.remember(scene, segmenter.segment(scene))
    begin = time.perf_counter()
    for scene in range(20):
        segmenter.segment(scene)
    packing = time.perf_counter()
    cache.pack(40)
    request_s, pack_s = (packing - begin) / 20, (time.perf_counter() - packing) / 40
    busy_s, pause_s = (0.035, 0.28) if weak else (0.22, 0.2)
    count = max(1, round((busy_s + 2.5 * request_s) / pack_s))

    server, done = MapServer(segmenter, cache), threading.Event()
    listener = threading.Thread(target=server.serve_forever, args=(0.1,))
    janitor = threading.Thread(target=tidy_regularly, args=(cache, count, pause_s, done))
    command = [sys.executable, "-c", VIEWERS, str(server.server_address[1]), "3", str(seed)]
    viewers = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        listener.start()
        janitor.start()
        time.sleep(seconds)
        answered = server.answered
    finally:
        viewers.kill()
        viewers.wait()
        done.set()
        janitor.join()
        server.shutdown()
        server.server_close()
        server.pool.shutdown(wait=True)
    print(json.dumps({"steps": answered}))


main()
