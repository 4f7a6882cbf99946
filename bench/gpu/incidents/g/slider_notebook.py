"""Notebook kernel for photo restoration: the front end sends a cell whenever the user moves a slider."""
import ctypes, json, os, random, signal, socket, statistics, sys, time
import multiprocessing as mp

os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"  # leave nothing behind in the home folder

import torch
import torch.nn as nn

TRUTH = {
    "cause": ["lazy-load"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
CHANNELS, LAYERS, SIZE = 256, 12, 512
FIXED_CURVE = "template <typename T> T {name}(T x) {{ return ::pow(::fabs(x), T({gamma})); }}"
ANY_CURVE = "template <typename T> T any_curve(T x, T gamma) { return ::pow(::fabs(x), gamma); }"


def front_end(wire, seed, think):
    """The browser's side: sends cells and waits for the pictures; a dragged slider sends cells ahead."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"notebook-ui", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    rng = random.Random(seed)
    per_gamma = json.loads(wire.recv(1000))["pictures_per_gamma"]
    sent, waiting, gamma = 0, 0, 1.0
    while True:
        if think:
            time.sleep(rng.uniform(0.3, 1.0))  # the user looks at the picture
        while waiting < (1 if think else 4):
            if sent % per_gamma == 0:
                gamma = round(rng.uniform(0.4, 2.6), 6)
            cell = f"show(tone(restore({sent % 16}), {gamma}))"
            wire.send(json.dumps({"execution": sent, "cell": cell}).encode())
            sent, waiting = sent + 1, waiting + 1
        if not wire.recv(1000):
            return
        waiting -= 1


class Studio:
    """What the cells of the notebook can call."""

    def __init__(self, seed, baked):
        torch.manual_seed(seed)
        self.baked, self.curves, self.shown = baked, {}, None
        layers = [nn.Conv2d(3, CHANNELS, 3, padding=1)]
        for _ in range(LAYERS):
            layers += [nn.ReLU(inplace=True), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)]
        layers += [nn.ReLU(inplace=True), nn.Conv2d(CHANNELS, 3, 3, padding=1)]
        self.net = nn.Sequential(*layers).to("cuda", torch.bfloat16).to(memory_format=torch.channels_last).eval()
        photos = torch.rand(19, 3, SIZE, SIZE, device="cuda").to(torch.bfloat16)
        self.photos = photos.contiguous(memory_format=torch.channels_last)
        self.any_curve = torch.cuda.jiterator._create_jit_fn(ANY_CURVE, gamma=1.0)

    def restore(self, first):
        with torch.inference_mode():
            return self.net(self.photos[first:first + 4]).float()

    def curve(self, gamma):
        """The tone curve of one gamma, made once."""
        if gamma not in self.curves:
            code = FIXED_CURVE.format(name=f"curve_{len(self.curves)}", gamma=gamma)
            self.curves[gamma] = torch.cuda.jiterator._create_jit_fn(code)  # ALT
        return self.curves[gamma]

    def tone(self, pictures, gamma):
        with torch.inference_mode():
            if self.baked:
                return self.curve(gamma)(pictures)  # FAULT
            return self.any_curve(pictures, gamma=gamma)

    def show(self, pictures):
        with torch.inference_mode():
            self.shown = pictures[:, :, ::64, ::64].flatten().cpu().tolist()  # a thumbnail

    def run(self, cell):
        exec(compile(cell, "<cell>", "exec"), {"show": self.show, "tone": self.tone, "restore": self.restore})  # ALT
        return self.shown


def seconds_of(fn, *args):
    t0 = time.perf_counter()
    fn(*args)
    torch.cuda.synchronize()
    return time.perf_counter() - t0


def calibrate(studio, seed, share):
    """How many pictures the user looks at per gamma, so that making a curve has its share of the time."""
    times = []
    for i in range(10):
        pictures = studio.restore(i)
        studio.any_curve(pictures, gamma=1.5)
        times.append(seconds_of(lambda: studio.show(studio.any_curve(studio.restore(i), gamma=1.2 + i))))
    step = statistics.median(times[2:])
    rng = random.Random(-seed - 1)
    compile_s = statistics.median(
        seconds_of(lambda g: studio.curve(g)(pictures), round(rng.uniform(0.4, 2.6), 6)) for _ in range(3))
    return max(1, round(compile_s * (1 - share) / (share * step)))


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ctx = mp.get_context("fork")
    browser = ctx.Process(target=front_end, args=(far, seed, mode == "healthy"), daemon=True)
    browser.start()
    far.close()
    try:
        studio = Studio(seed, baked=mode == "fault")
        per_gamma = calibrate(studio, seed, 0.46 if strength == "strong" else 0.10)
        near.send(json.dumps({"pictures_per_gamma": per_gamma}).encode())
        near.settimeout(0.2)
        steps, end = 0, time.time() + seconds
        while time.time() < end:
            try:
                request = json.loads(near.recv(1000))
            except socket.timeout:
                continue
            result = studio.run(request["cell"])
            near.send(json.dumps({"execution": request["execution"], "mean": sum(result) / len(result)}).encode())
            steps += 1
    finally:
        browser.kill()
        browser.join(5)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
