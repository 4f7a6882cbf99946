#!/usr/bin/env python3
# Scores user sessions over UDP. Session rows live in one file, which a compactor process
# tidies up in the background; readers and the compactor agree through flock().
import fcntl, json, os, socket, subprocess, sys, tempfile, time

import numpy as np
import torch

TRUTH = {"cause": ["lock-wait"], "culprit": "child:python3", "line": "# FAULT"}

ROW = 1024          # float32 values of one session
SESSIONS = 2048

COMPACTOR = r"""
import fcntl, os, sys, threading, time
path, hold, period = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
fd = os.open(path, os.O_RDWR)
size, block = os.fstat(fd).st_size, 65536
while True:
    began = time.time()
    fcntl.flock(fd, fcntl.LOCK_EX)
    offset, done = 0, time.time() + hold
    while time.time() < done:
        os.pwrite(fd, os.pread(fd, block, offset), offset)
        offset = (offset + block) % size
    fcntl.flock(fd, fcntl.LOCK_UN)
    time.sleep(max(0.001, period - (time.time() - began)))
"""

CLIENTS = r"""
import os, random, socket, sys, threading, time
port, clients, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def ask(n):
    rng, s = random.Random(n), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    while True:
        s.sendto(b"%d" % rng.randrange(2048), ("127.0.0.1", port))
        try:
            s.recv(64)
        except OSError:
            pass
        if pause:
            time.sleep(rng.uniform(0.5, 1.5) * pause)
for n in range(clients):
    threading.Thread(target=ask, args=(n,), daemon=True).start()
sys.stdin.read()
os._exit(0)
"""


def spawn(code, *args):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE)


def read_session(fd, sid):
    fcntl.flock(fd, fcntl.LOCK_SH)  # FAULT
    try:
        return np.frombuffer(os.pread(fd, 4 * ROW, 4 * ROW * sid), np.float32).copy()
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)


def make_model(seed):
    torch.manual_seed(seed)
    rows = 8192 + 128 * (seed % 5)
    items = torch.randn(rows, ROW, device="cuda", dtype=torch.bfloat16)
    up = torch.randn(ROW, 4096, device="cuda", dtype=torch.bfloat16) / 32
    mids = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64 for _ in range(8)]

    @torch.no_grad()
    def score(session):
        h = (items * torch.from_numpy(session).cuda().bfloat16()) @ up
        for m in mids:
            h = torch.tanh(h @ m)
        return h.float().mean().item()

    return score


def serve(sock, fd, score, until):
    served = 0
    while time.time() < until:
        try:
            request, peer = sock.recvfrom(64)
        except TimeoutError:
            continue
        sock.sendto(b"%.6f" % score(read_session(fd, int(request))), peer)
        served += 1
    return served


if __name__ == "__main__":
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = len(sys.argv) > 4 and sys.argv[4] == "weak"
    score = make_model(seed)
    for _ in range(5):
        score(np.ones(ROW, np.float32))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sessions.f32")
        np.random.default_rng(seed).random((SESSIONS, ROW), dtype=np.float32).tofile(path)
        fd = os.open(path, os.O_RDONLY)
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(0.2)
        # healthy: the compactor takes the lock for one block, once a second; quiet clients
        hold, period = ((0.010, 0.080) if weak else (0.045, 0.080)) if mode == "fault" else (0.0001, 1.0)
        children = [spawn(COMPACTOR, path, hold, period),
                    spawn(CLIENTS, sock.getsockname()[1], *((3, 0) if mode == "fault" else (1, 0.3)))]
        try:
            served = serve(sock, fd, score, time.time() + seconds)
        finally:
            for child in children:
                child.kill()
                child.wait()
            os.close(fd)
    print(json.dumps({"steps": served}))
