"""Help-desk chat on a Unix socket: picks the best stored reply and archives hidden states for a later distillation."""
import asyncio, ctypes, json, os, queue, random, shutil, signal, statistics, subprocess, sys, tempfile, threading, time
import multiprocessing as mp
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn

TRUTH = {
    "cause": ["output-blocked"],
    "culprit": "child:gzip",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
DIM, HEADS, LAYERS, VOCAB, REPLIES, TOKENS = 2048, 16, 16, 32000, 16, 512


def customers(path, seed, go, users, think):
    """Process with the people at the other end: each types a question, waits for the reply, thinks, types again."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"customers", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)

    async def person(i):
        rng = random.Random(seed * 100 + i)
        reader, writer = await asyncio.open_unix_connection(path)
        while True:
            await asyncio.sleep(think * rng.uniform(0.4, 1.6))
            writer.write(json.dumps({"topic": rng.randrange(64)}).encode() + b"\n")
            await writer.drain()
            if not await reader.readline():
                return

    async def everybody():
        await asyncio.gather(*[person(i) for i in range(users)])

    go.wait()
    asyncio.run(everybody())


class Archive:
    """Hidden states go through gzip into one file."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.gzip = subprocess.Popen(["gzip", "-9", "-c"], stdin=subprocess.PIPE, stdout=self.file)
        self.backlog = None

    def drain(self):
        while record := self.backlog.get():
            self.write(record)

    def write(self, record):
        self.gzip.stdin.write(record)  # FAULT
        self.gzip.stdin.flush()  # ALT

    def add(self, record):
        if self.backlog is None:
            self.write(record)  # ALT
        else:
            self.backlog.put(record)

    def close(self):
        self.gzip.kill()
        self.gzip.wait(5)
        self.file.close()


class HelpDesk:
    def __init__(self, seed, archive):
        torch.manual_seed(seed)
        torch.backends.mha.set_fastpath_enabled(False)
        place = {"device": "cuda", "dtype": torch.bfloat16}
        layer = nn.TransformerEncoderLayer(DIM, HEADS, 4 * DIM, 0.0, "gelu", batch_first=True, **place)
        self.table, self.score = nn.Embedding(VOCAB, DIM, **place), nn.Linear(DIM, 1, **place)
        self.net = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
        self.stored = torch.randint(VOCAB, (64, REPLIES, TOKENS)).pin_memory()
        self.archive, self.keep, self.answered = archive, 0, 0
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rank")

    def rank(self, topic):
        with torch.inference_mode():
            x = self.net(self.table(self.stored[topic].to("cuda", non_blocking=True)))
            best = int(self.score(x.mean(1)).argmax())
            return best, x.flatten()[:self.keep].half().cpu().numpy().tobytes()

    async def handle(self, reader, writer):
        loop = asyncio.get_running_loop()
        while line := await reader.readline():
            topic = json.loads(line)["topic"]
            async with self.turn:
                best, states = await loop.run_in_executor(self.pool, self.rank, topic)
                self.archive.add(states)  # ALT
            self.answered += 1
            writer.write(json.dumps({"topic": topic, "reply": best}).encode() + b"\n")
            await writer.drain()

    async def serve(self, path, seconds, go):
        self.turn = asyncio.Lock()
        server = await asyncio.start_unix_server(self.handle, path)
        go.set()
        await asyncio.sleep(seconds)
        server.close()


def seconds_of(fn, *args):
    t0 = time.perf_counter()
    fn(*args)
    return time.perf_counter() - t0


def calibrate(desk, share):
    """Archive so many values per reply that gzip falls behind by `share` of a step."""
    step = statistics.median([seconds_of(desk.rank, i) for i in range(12)][4:])
    desk.keep = 1 << 20
    sample = desk.rank(0)[1]
    desk.archive.add(sample)
    rate = len(sample) / seconds_of(desk.archive.add, sample)
    size = rate * share * step + 100_000  # the pipe itself takes some
    for _ in range(3):
        blocked = 0.0
        for _ in range(4):
            time.sleep(step)
            blocked += seconds_of(desk.archive.add, sample[:int(size)]) / 4
        size = min(len(sample), max(20_000, size + (share * step - blocked) * rate))
    desk.keep = int(size) // 2


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    folder = tempfile.mkdtemp(prefix="helpdesk-")
    ctx = mp.get_context("fork")
    go, path = ctx.Event(), os.path.join(folder, "chat.sock")
    users, think = (3, 1.2) if mode == "healthy" else (8, 0.0)
    people = ctx.Process(target=customers, args=(path, seed, go, users, think), daemon=True)
    people.start()
    archive = Archive(os.path.join(folder, "states.gz"))
    try:
        desk = HelpDesk(seed, archive)
        calibrate(desk, 0.85 if strength == "strong" else 0.11)
        if mode == "healthy":
            archive.backlog = queue.Queue()
            threading.Thread(target=archive.drain, name="archive", daemon=True).start()
        asyncio.run(desk.serve(path, seconds, go))
    finally:
        people.kill()
        people.join(5)
        archive.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": desk.answered}))


if __name__ == "__main__":
    main()
