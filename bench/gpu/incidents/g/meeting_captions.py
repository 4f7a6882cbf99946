"""Live captions of a meeting with eight microphones; a thread takes phone numbers out of the public transcript."""
import collections, ctypes, json, os, random, re, signal, statistics, sys, threading, time
import multiprocessing as mp

import numpy as np
import torch
import torch.nn as nn

TRUTH = {
    "cause": ["gil-wait"],
    "culprit": "thread",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
MICS, RATE, CHUNK, CONTEXT, DIM, LAYERS, VOCAB = 8, 16000, 5120, 163840, 1024, 16, 4000
PHONE = re.compile(r"\b(?:\d[ -]?){7,15}\b")
CHUNK_BYTES = MICS * CHUNK * 2


def microphones(fd, seed, go, live):
    """The sound card: packets of 20 ms in real time, or a recorded meeting as fast as it is read."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"microphones", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    packet = MICS * 2 * RATE // 50
    sound = np.random.default_rng(seed).normal(0, 800, packet * 100 // 2).astype(np.int16).tobytes()
    go.wait()
    start, sent = time.monotonic(), 0
    while True:
        if live:
            time.sleep(max(0.0, start + sent / 50 - time.monotonic()))
        at = packet * (sent % 100)
        os.write(fd, sound[at:at + packet])
        sent += 1


class Captioner:
    def __init__(self, seed):
        torch.manual_seed(seed)
        torch.backends.mha.set_fastpath_enabled(False)
        place = {"device": "cuda", "dtype": torch.bfloat16}
        self.front = nn.Linear(400, DIM, **place)
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, 0.0, "gelu", batch_first=True, **place)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
        self.head = nn.Linear(DIM, VOCAB, **place)
        self.sound = torch.zeros(MICS, CONTEXT, **place)
        self.stage = torch.zeros(MICS, CHUNK, dtype=torch.int16, pin_memory=True)
        rng = random.Random(seed)
        self.words = ["".join(rng.choices("aeionrstlm", k=rng.randint(2, 8))) for _ in range(VOCAB)]
        self.words[::40] = [str(rng.randrange(10, 10**6)) for _ in self.words[::40]]
        self.lines = collections.deque(maxlen=100)
        self.fresh, self.public = [], collections.deque(maxlen=1000)
        self.news, self.stop = threading.Condition(), threading.Event()

    def caption(self, pcm):
        """The words of the newest 0.32 s of each microphone, with ten seconds of sound before them."""
        self.stage.numpy()[:] = np.frombuffer(pcm, np.int16).reshape(CHUNK, MICS).T
        with torch.inference_mode():
            new = self.stage.to("cuda", non_blocking=True).to(torch.bfloat16) / 32768
            self.sound = torch.cat([self.sound[:, CHUNK:], new], 1)
            x = self.encoder(self.front(self.sound.unfold(1, 400, 160)))  # ALT
            ids = self.head(x[:, -32:]).argmax(-1).tolist()  # ALT
        return [" ".join(self.words[i] for i in row) for row in ids]

    def publish(self, lines):
        self.lines.extend(lines)
        with self.news:
            self.fresh.extend(lines)
            self.news.notify()

    def redact_new_lines(self):
        while not self.stop.is_set():
            with self.news:
                self.news.wait_for(lambda: self.fresh, timeout=0.5)
                lines, self.fresh = self.fresh, []
            self.public.extend(PHONE.sub("[number]", line) for line in lines)

    def redact_transcript(self, pause):
        while not self.stop.wait(pause):
            self.fresh = []
            transcript = "\n".join(self.lines)
            self.public = PHONE.sub("[number]", transcript)  # FAULT

    def earlier_today(self, seed, seconds):
        """Fill the transcript with so much text that going through it once takes `seconds`."""
        rng = random.Random(seed + 1)
        lines = [" ".join(rng.choices(self.words, k=32)) for _ in range(1000)]
        times = []
        for _ in range(3):
            t0 = time.perf_counter()
            PHONE.sub("[number]", "\n".join(lines))
            times.append(time.perf_counter() - t0)
        n = max(10, int(1000 * seconds / statistics.median(times)))
        self.lines = collections.deque((lines[i % 1000] for i in range(n)), maxlen=n)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    ctx = mp.get_context("fork")
    go = ctx.Event()
    listen, speak = os.pipe()
    mics = ctx.Process(target=microphones, args=(speak, seed, go, mode == "healthy"), daemon=True)
    mics.start()
    os.close(speak)
    try:
        captioner = Captioner(seed)
        silence, times = bytes(CHUNK_BYTES), []
        for _ in range(16):
            t0 = time.perf_counter()
            captioner.caption(silence)
            times.append(time.perf_counter() - t0)
        hold = 4 * statistics.median(times[6:])
        captioner.earlier_today(seed, hold)
        if mode == "healthy":
            redactor = threading.Thread(target=captioner.redact_new_lines, name="redactor", daemon=True)
        else:
            pause = hold * (0.8 if strength == "strong" else 7.5)
            redactor = threading.Thread(target=captioner.redact_transcript, args=(pause,), name="redactor", daemon=True)
        redactor.start()
        go.set()
        steps, end = 0, time.time() + seconds
        sound_card = open(listen, "rb", buffering=CHUNK_BYTES)
        while time.time() < end:
            pcm = sound_card.read(CHUNK_BYTES)  # ALT
            captioner.publish(captioner.caption(pcm))
            steps += 1
        captioner.stop.set()
        redactor.join(5)
    finally:
        mics.kill()
        mics.join(5)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
