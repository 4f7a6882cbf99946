"""N-body galaxy simulation that streams every frame to a live viewer over a local socket.

usage: galaxy_live.py MODE SECONDS SEED [STRENGTH]
(the program starts itself again as the viewer: galaxy_live.py viewer NAME BYTES PERIOD)
"""
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time

TRUTH = {"cause": ["output-blocked"], "culprit": "child", "line": "# FAULT", "compound": False}

SOCKET_BUFFER = 96 * 1024  # small, a live picture shall not lag behind


def viewer(name, size, period):
    """Draws one frame per screen refresh; `period` seconds are what the display needs."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect("\0" + name)
    frame = bytearray(size)
    view, slot = memoryview(frame), time.monotonic()
    while True:
        got = 0
        while got < size:
            try:
                n = sock.recv_into(view[got:])
            except OSError:
                return
            if n == 0:
                return
            got += n
        slot = max(slot + period, time.monotonic() - period)
        time.sleep(max(0.0, slot - time.monotonic()))


class Galaxy:
    def __init__(self, torch, bodies, seed):
        gen = torch.Generator("cuda").manual_seed(seed)
        self.torch = torch
        self.x = torch.randn(bodies, 3, device="cuda", generator=gen) * 10
        self.v = torch.randn(bodies, 3, device="cuda", generator=gen) * 0.1
        self.a = torch.zeros_like(self.x)
        self.mass = 100.0 / bodies

    def kick(self, dt=0.002):
        """One leap-frog step with softened gravity of all pairs."""
        x = self.x
        sq = (x * x).sum(1)
        w = self.torch.matmul(x, x.t()).mul_(-2)
        w.add_(sq.unsqueeze(1)).add_(sq.unsqueeze(0) + 0.05).clamp_(min=0.01).rsqrt_().pow_(3)
        self.a = (self.torch.matmul(w, x) - w.sum(1, keepdim=True) * x) * self.mass
        self.v = (self.v + dt * self.a) * 0.9999
        self.x = x + dt * self.v

    def frame(self, substeps):
        for _ in range(substeps):
            self.kick()
        return self.torch.cat([self.x, self.v, self.a], 1).cpu().numpy().tobytes()


class DirectFeed:
    """Hands each frame to the viewer's connection."""

    def __init__(self, conn):
        self.conn = conn

    def show(self, frame):
        self.conn.sendall(frame)  # FAULT

    def close(self):
        self.conn.close()


class LatestFeed:
    """Sends in the background; frames that come while one is under way are dropped."""

    def __init__(self, conn):
        self.conn, self.slot = conn, queue.Queue(1)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (frame := self.slot.get()) is not None:
            try:
                self.conn.sendall(frame)
            except OSError:
                return

    def show(self, frame):
        try:
            self.slot.put_nowait(frame)
        except queue.Full:
            pass

    def close(self):
        try:
            self.conn.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        try:
            self.slot.put_nowait(None)
        except queue.Full:
            pass
        self.thread.join(2)
        self.conn.close()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.45 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.115
    import torch

    sky = Galaxy(torch, 12288 + 512 * (seed % 4), seed)

    def frame_time(substeps, span):
        n, t0 = 0, time.perf_counter()
        while time.perf_counter() - t0 < span:
            sky.frame(substeps)
            n += 1
        return (time.perf_counter() - t0) / n

    frame_time(2, 0.5)
    one = frame_time(6, 0.5) / 6
    substeps = max(1, round(0.032 / one))
    frame_time(substeps, 0.8)
    gpu_step = frame_time(substeps, 1.5)

    size = len(sky.frame(1))
    period = gpu_step / (1 - share)
    name = f"galaxy-live-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(1)
    listener.settimeout(20)
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "viewer",
                              name, str(size), repr(period)])
    feed = None
    try:
        conn, _ = listener.accept()
        conn.settimeout(None)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        feed = DirectFeed(conn) if mode == "fault" else LatestFeed(conn)
        for _ in range(6):
            feed.show(sky.frame(substeps))

        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            feed.show(sky.frame(substeps))
            steps += 1
        wall = time.perf_counter() - start
    finally:
        if feed is not None:
            feed.close()
        listener.close()
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / steps,
                      "gpu_step_ms": 1e3 * gpu_step, "substeps": substeps, "frame_bytes": size,
                      "viewer_ms": 1e3 * period}))


if __name__ == "__main__":
    if sys.argv[1] == "viewer":
        viewer(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
