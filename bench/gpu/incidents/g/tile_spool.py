"""Land-cover worker: takes satellite tiles from a spool folder and writes maps; a backup process saves the newest."""
import contextlib, ctypes, fcntl, json, os, random, shutil, signal, statistics, sys, tempfile, time, zlib
import multiprocessing as mp

import numpy as np
import torch
import torch.nn as nn

TRUTH = {
    "cause": ["lock-wait"],
    "culprit": "child:map-backup",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
TILES, SIDE, PATCH, DIM, LAYERS, CLASSES = 64, 64, 4, 1024, 24, 4


def become(name):
    libc = ctypes.CDLL(None)
    libc.prctl(15, name, 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)


@contextlib.contextmanager
def spool_lock(folder):
    with open(os.path.join(folder, "lock")) as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # FAULT
        yield


def dispatcher(folder, seed, go, busy):
    """Puts jobs into the spool: one now and then, or always a dozen ahead."""
    become(b"dispatcher")
    rng, np_rng, inbox, number = random.Random(seed), np.random.default_rng(seed), os.path.join(folder, "in"), 0
    tiles = np_rng.integers(0, 255, (8, TILES, 3, SIDE, SIDE), dtype=np.uint8)
    go.wait()
    while True:
        waiting = sum(name.endswith(".npy") for name in os.listdir(inbox))
        for _ in range(max(0, 12 - waiting) if busy else 1):
            draft = os.path.join(inbox, "draft")
            with open(draft, "wb") as f:
                np.save(f, tiles[number % 8])
            os.rename(draft, os.path.join(inbox, f"{number:06d}.npy"))
            number += 1
        time.sleep(0.01 if busy else rng.uniform(0.6, 1.3))


def backup(folder, plan, go, lock_all):
    """Saves the newest maps again and again; nobody may change the spool while the list of maps is made."""
    become(b"map-backup")
    done = os.path.join(folder, "done")

    def newest():
        return sorted(os.listdir(done))[-int(plan[0]):]

    def save(names):
        with open(os.path.join(folder, "backup.z"), "wb") as out:
            for name in names:
                with open(os.path.join(done, name), "rb") as f:
                    out.write(zlib.compress(f.read(), 9))

    go.wait()
    while True:
        time.sleep(plan[1])
        if lock_all:
            with spool_lock(folder):
                save(newest())  # ALT
        else:
            with spool_lock(folder):
                names = newest()
            save(names)


class Worker:
    def __init__(self, folder, seed):
        torch.manual_seed(seed)
        self.folder, self.inbox, self.done = folder, os.path.join(folder, "in"), os.path.join(folder, "done")
        torch.backends.mha.set_fastpath_enabled(False)
        place = {"device": "cuda", "dtype": torch.bfloat16}
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, 0.0, "gelu", batch_first=True, **place)
        self.stem, self.head = nn.Conv2d(3, DIM, PATCH, PATCH, **place), nn.Linear(DIM, CLASSES, **place)
        self.net = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
        self.stage = torch.zeros(TILES, 3, SIDE, SIDE, dtype=torch.uint8, pin_memory=True)

    def classify(self, tiles):
        self.stage.numpy()[:] = tiles
        with torch.inference_mode():
            x = self.stem(self.stage.to("cuda", non_blocking=True).to(torch.bfloat16) / 255)
            x = self.net(x.flatten(2).transpose(1, 2))
            return self.head(x).float().softmax(-1).cpu().numpy()

    def claim(self):
        names = sorted(name for name in os.listdir(self.inbox) if name.endswith(".npy"))
        if not names:
            return None, None
        with spool_lock(self.folder):  # ALT
            tiles = np.load(os.path.join(self.inbox, names[0]))
            os.remove(os.path.join(self.inbox, names[0]))
        return names[0], tiles

    def store(self, name, maps):
        with spool_lock(self.folder):  # ALT
            np.save(os.path.join(self.done, name), maps)


def seconds_of(fn, *args):
    t0 = time.perf_counter()
    fn(*args)
    return time.perf_counter() - t0


def run(mode, seconds, seed, strength, folder):
    for name in ("in", "done"):
        os.mkdir(os.path.join(folder, name))
    open(os.path.join(folder, "lock"), "w").close()
    ctx = mp.get_context("fork")
    go, plan = ctx.Event(), ctx.RawArray("d", 2)
    children = [ctx.Process(target=dispatcher, args=(folder, seed, go, mode == "fault"), daemon=True),
                ctx.Process(target=backup, args=(folder, plan, go, mode == "fault"), daemon=True)]
    for c in children:
        c.start()
    try:
        worker = Worker(folder, seed)
        tiles = np.random.default_rng(seed).integers(0, 255, worker.stage.shape, dtype=np.uint8)
        maps = worker.classify(tiles)
        step = statistics.median([seconds_of(worker.classify, tiles) for _ in range(12)][4:])
        map_s = statistics.median(seconds_of(zlib.compress, maps.tobytes(), 9) for _ in range(5))
        plan[0] = max(1, round(4 * step / map_s))
        plan[1] = plan[0] * map_s * (0.8 if strength == "strong" else 7.5)
        for i in range(int(plan[0])):  # yesterday's maps
            worker.store(f"000000-{i:03d}.npy", maps)
        go.set()
        steps, end = 0, time.time() + seconds
        while time.time() < end:
            name, tiles = worker.claim()
            if name is None:
                time.sleep(0.02)
                continue
            worker.store(name, worker.classify(tiles))
            steps += 1
        return steps
    finally:
        for c in children:
            c.kill()
            c.join(5)


if __name__ == "__main__":
    spool = tempfile.mkdtemp(prefix="spool-")
    try:
        n = run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), (sys.argv + ["strong"])[4], spool)
    finally:
        shutil.rmtree(spool, ignore_errors=True)
    print(json.dumps({"steps": n}))
