"""Delivery robot: a lidar head sends a sweep at fixed times; the robot adds the height of each cell and steers."""
import ctypes, json, signal, socket, statistics, struct, sys, time
import multiprocessing as mp

import numpy as np
import torch
import torch.nn as nn

TRUTH = {
    "cause": ["page-fault"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
POINTS, SLOTS, SIDE, WIDTH = 16384, 8, 4096, 2048


def lidar_head(ring, seed, wire):
    """The sensor: fills the shared ring once, then announces one slot at each tick of its timer."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"lidar-head", 0, 0, 0)  # PR_SET_NAME
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    sweeps = np.frombuffer(ring, np.float32)
    sweeps[:] = np.random.default_rng(seed).random(sweeps.size, dtype=np.float32)
    wire.send(b"ready")
    (period,) = struct.unpack("d", wire.recv(8))
    wire.setblocking(False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, period, period)
    tick = 0
    while True:
        signal.sigwait({signal.SIGALRM})
        try:
            wire.send(struct.pack("I", tick % SLOTS))
        except BlockingIOError:
            pass  # the robot is far behind: this sweep is lost
        tick += 1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Patrol:
    def __init__(self, seed, sweeps, wire):
        torch.manual_seed(seed)
        self.sweeps, self.wire = sweeps, wire
        with torch.device("cuda"):
            self.net = nn.Sequential(nn.Linear(4, WIDTH), *[Block() for _ in range(9)], nn.Linear(WIDTH, 2))
        self.net = self.net.to(torch.bfloat16).eval()
        self.stage = torch.zeros(POINTS, 4, pin_memory=True)
        self.scales, self.every, self.frames = 0, 1, 0
        self.maps, self.touched = None, None

    def keep_maps(self):
        """One map per scale for the whole patrol; only the cells of the last sweep are cleared again."""
        self.maps = [np.zeros((SIDE - 16 * k) ** 2, np.float32) for k in range(self.scales)]
        self.touched = [np.zeros(1, np.int64) for _ in self.maps]
        for m in self.maps:
            m.fill(0.0)

    def cell_heights(self, k, xyz):
        """Height of the newest point in the cell of each point, on the map of scale k."""
        side = SIDE - 16 * k
        cells = (xyz[:, 0] * side).astype(np.int64) * side + (xyz[:, 1] * side).astype(np.int64)
        if self.maps:
            grid = self.maps[k]
            grid[self.touched[k]] = 0.0
            self.touched[k] = cells
        else:
            grid = np.zeros(side * side, np.float32)  # ALT
        grid[cells] = xyz[:, 2]  # FAULT
        return grid[cells]  # ALT

    def frame(self, slot):
        xyz, stage = self.sweeps[slot], self.stage.numpy()
        stage[:, :3] = xyz
        if self.frames % self.every == 0:
            for k in range(self.scales):
                stage[k % 8::8, 3] = self.cell_heights(k, xyz[k % 8::8])  # ALT
        self.frames += 1
        with torch.inference_mode():
            x = self.stage.to("cuda", non_blocking=True).to(torch.bfloat16)
            return self.net(x).float().mean(0).cpu().tolist()

    def newest_slot(self):
        """Wait for a sweep; when several wait already, only the newest one counts."""
        packet = self.wire.recv(4)
        while packet:
            try:
                packet = self.wire.recv(4, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return struct.unpack("I", packet)[0]
        raise ConnectionError("the lidar head is gone")


def timed(fn, n):
    times = []
    for i in range(n):
        t0 = time.perf_counter()
        fn(i)
        times.append(time.perf_counter() - t0)
    return statistics.median(times)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    ctx = mp.get_context("fork")
    ring = ctx.RawArray("f", SLOTS * POINTS * 3)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    head = ctx.Process(target=lidar_head, args=(ring, seed, far), daemon=True)
    head.start()
    far.close()
    try:
        near.recv(16)
        sweeps = np.frombuffer(ring, np.float32).reshape(SLOTS, POINTS, 3)
        robot = Patrol(seed, sweeps, near)
        timed(lambda i: robot.frame(i % SLOTS), 6)
        step = timed(lambda i: robot.frame(i % SLOTS), 9)
        fresh_map = timed(lambda i: robot.cell_heights(i % 8, sweeps[i % SLOTS][i % 8::8]), 15)
        budget = step * (0.85 if strength == "strong" else 0.11)
        robot.scales = min(24, max(1, round(budget / fresh_map)))
        robot.every = max(1, round(fresh_map / budget))
        if mode == "healthy":
            robot.keep_maps()
        period = 0.1 if mode == "healthy" else max(0.002, 0.9 * step)  # a fast head keeps the robot busy
        for i in range(SLOTS):
            robot.frame(i)
        near.send(struct.pack("d", period))
        steps, end = 0, time.time() + seconds
        while time.time() < end:
            left, right = robot.frame(robot.newest_slot())
            steps += 1
            if steps % 100 == 0:
                print("frame", steps, "steer", round(left - right, 4), file=sys.stderr)
    finally:
        head.kill()
        head.join(5)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
