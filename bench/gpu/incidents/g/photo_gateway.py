"""Photo labelling over HTTP behind a small proxy; by policy the table of labels is checked before it is used."""
import ctypes, hashlib, http.client, json, os, random, shutil, signal, socket, statistics, subprocess, sys
import tempfile, threading, time, timeit
import multiprocessing as mp
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.nn as nn

TRUTH = {"cause": ["child-wait"], "culprit": "child:sha256sum", "line": "# FAULT", "alt_line": "# ALT",
         "compound": False}
BATCH, ALBUMS, DIM, LAYERS, LABELS, MB = 2, 16, 1536, 24, 1000, 1 << 20


def become(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def proxy(door, port):
    become(b"front-proxy")

    def pump(source, target):
        while data := source.recv(65536):
            target.sendall(data)

    while True:
        front, _ = door.accept()
        back = socket.create_connection(("127.0.0.1", port))
        for pair in ((front, back), (back, front)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def visitors(port, seed, go, count, pause):
    become(b"visitors")

    def visitor(i):
        rng, site = random.Random(seed * 100 + i), http.client.HTTPConnection("127.0.0.1", port)
        while True:
            time.sleep(pause * rng.uniform(0.3, 1.7))
            site.request("POST", "/label", body=json.dumps({"album": rng.randrange(ALBUMS)}))
            site.getresponse().read()

    go.wait()
    for i in range(count):
        threading.Thread(target=visitor, args=(i,)).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, 1 << 16
    log_message = staticmethod(lambda *args: None)

    def do_POST(self):
        album = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["album"]
        body = json.dumps({"labels": self.server.labeller.ask(album)})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


class Labeller:
    def __init__(self, seed, folder):
        torch.manual_seed(seed)
        torch.backends.mha.set_fastpath_enabled(False)
        place = {"device": "cuda", "dtype": torch.bfloat16}
        layer = nn.TransformerEncoderLayer(DIM, 12, 4 * DIM, 0.0, "gelu", batch_first=True, **place)
        self.stem, self.head = nn.Conv2d(3, DIM, 14, 14, **place), nn.Linear(DIM, LABELS, **place)
        self.net = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
        self.albums = torch.rand(ALBUMS, 4, 3, 448, 448).to(torch.bfloat16).pin_memory()
        self.folder, self.table = folder, os.path.join(folder, "labels.bin")
        self.only_changes, self.checked, self.every, self.batches, self.answered = False, None, 1, 0, 0
        self.bell, self.waiting = threading.Condition(), []

    def write_table(self, size):
        data = random.Random(size).randbytes(MB) * (size // MB)
        with open(self.table, "wb") as f, open(os.path.join(self.folder, "labels.sha256"), "w") as sums:
            f.write(data)
            sums.write(hashlib.sha256(data).hexdigest() + "  labels.bin\n")

    def check_table(self):
        changed = os.stat(self.table).st_mtime_ns
        if changed != self.checked or not self.only_changes:
            subprocess.run(["sha256sum", "--check", "--status", "labels.sha256"], cwd=self.folder, check=True)  # FAULT
        self.checked = changed

    def label(self, numbers):
        with torch.inference_mode():
            x = torch.cat([self.albums[n].to("cuda", non_blocking=True) for n in numbers])
            x = self.net(self.stem(x).flatten(2).transpose(1, 2))
            return self.head(x.mean(1)).argmax(-1).view(-1, 4).tolist()

    def ask(self, album):
        answer = Future()
        with self.bell:
            self.waiting.append((album, answer))
            self.bell.notify()
        return answer.result(timeout=30)

    def serve(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            with self.bell:
                self.bell.wait_for(lambda: self.waiting, timeout=0.2)
                batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
            if batch:
                self.answer(batch)

    def answer(self, batch):
        if self.batches % self.every == 0:
            self.check_table()  # ALT
        for (_, answer), labels in zip(batch, self.label([album for album, _ in batch])):
            answer.set_result(labels)
        self.batches, self.answered = self.batches + 1, self.answered + len(batch)


def median_time(fn, *args):
    return statistics.median(timeit.repeat(lambda: fn(*args), number=1, repeat=5))


def calibrate(labeller, share):
    """Choose the size of the table so that checking it has its share; for a small share it is checked less often."""
    median_time(labeller.label, range(1))  # warm up both sizes
    median_time(labeller.label, range(2))
    budget, cost = share * median_time(labeller.label, range(2)), []
    for size in (MB, 33 * MB):
        labeller.write_table(size)
        cost.append(median_time(labeller.check_table))
    wanted = max(budget, 2 * cost[0], 0.008)
    size = round(1 + 32 * (wanted - cost[0]) / max(1e-3, cost[1] - cost[0]))  # in MB
    labeller.write_table(MB * max(1, min(200, size)))
    labeller.every = max(1, round(median_time(labeller.check_table) / budget))


def main():
    mode, seconds, seed, strength = (sys.argv + ["strong"])[1:5]
    site, door = ThreadingHTTPServer(("127.0.0.1", 0), Handler), socket.create_server(("127.0.0.1", 0), backlog=64)
    folder, ctx = tempfile.mkdtemp(prefix="labels-"), mp.get_context("fork")
    go, (count, pause) = ctx.Event(), ((2, 0.8) if mode == "healthy" else (8, 0.0))
    children = [ctx.Process(target=proxy, args=(door, site.server_port), daemon=True),
                ctx.Process(target=visitors, args=(door.getsockname()[1], int(seed), go, count, pause), daemon=True)]
    for c in children:
        c.start()
    try:
        site.labeller = Labeller(int(seed), folder)
        calibrate(site.labeller, 0.85 if strength == "strong" else 0.11)
        site.labeller.only_changes = mode == "healthy"
        threading.Thread(target=site.serve_forever, name="http", daemon=True).start()
        go.set()
        site.labeller.serve(float(seconds))
    finally:
        for c in children:
            c.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": site.labeller.answered}))


if __name__ == "__main__":
    main()
