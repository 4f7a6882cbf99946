"""Makes pieces of music with a dilated convolution network, levels their loudness and feeds them to an encoder."""
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": [["output-blocked"], ["launch-bound"]], "culprit": ["child:python", "self"], "line": "# FAULT",
         "alt_line": "# ALT"}

PIECES, SAMPLES, WIDTH, LAYERS, REFINE, DECAY = 16, 32768, 256, 8, 4, 0.97
PIPE, GRAIN = 65536, 4096

ENCODER = r'''
import os, sys
from hashlib import sha256
effort, grain = float(sys.argv[1]), bytes(4096)
while data := os.read(0, 65536):
    for _ in range(round(effort * len(data) / len(grain))):
        sha256(grain).digest()
'''


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv1d(1, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, 1, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 3, padding=2 ** n, dilation=2 ** n) for n in range(LAYERS))

    def forward(self, noise):
        x = self.stem(noise)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return torch.tanh(self.head(x))


class Studio:
    def __init__(self, careful):
        self.waves, self.careful = Waves().to("cuda", torch.bfloat16).eval(), careful
        taps = DECAY ** torch.arange(255, -1, -1, device="cuda", dtype=torch.float32)
        self.taps = (taps / taps.sum())[None, None]

    def compose(self):
        sound = torch.randn(PIECES, 1, SAMPLES, device="cuda", dtype=torch.bfloat16)
        for _ in range(REFINE):
            sound = 0.9 * sound + 0.1 * self.waves(sound)
        sound = sound[:, 0].float()
        return sound / sound.abs().max().item()

    def follow(self, peaks):
        """The loudness that a listener remembers, frame after frame."""
        if self.careful:
            return F.conv1d(F.pad(peaks[:, None], (255, 0)), self.taps)[:, 0]
        level, levels = peaks[:, 0], []
        for n in range(peaks.shape[1]):
            level = DECAY * level + (1 - DECAY) * peaks[:, n]  # FAULT
            levels.append(level)
        return torch.stack(levels, 1)

    def level(self, sound, frames):
        peaks = F.adaptive_max_pool1d(sound.abs()[:, None], frames)[:, 0]
        loud = F.interpolate(self.follow(peaks)[:, None], SAMPLES, mode="linear")[:, 0]  # ALT
        return (sound / (0.2 + loud)).clamp(-1, 1)

    @torch.inference_mode()
    def piece(self, frames):
        return (self.level(self.compose(), frames) * 32767).to(torch.int16).cpu().numpy().tobytes()  # ALT


def deliver(encoder, music):
    view = memoryview(music)
    while view:
        view = view[encoder.stdin.write(view):]  # FAULT


def timed(function, times):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


@torch.inference_mode()
def sizes(studio, looped, blocked):
    """Frames per piece and effort of the encoder, for these shares of the time in which a piece is composed."""
    timed(studio.compose, 3)
    compose_s = timed(studio.compose, 8)
    peaks = torch.rand(PIECES, 500, device="cuda")
    slow = Studio(careful=False)
    timed(lambda: slow.follow(peaks), 2)
    frames = max(20, round(looped * compose_s / timed(lambda: slow.follow(peaks), 3) * 500))
    grain_s = timed(lambda: sha256(bytes(GRAIN)).digest(), 20_000)
    size = 2 * PIECES * SAMPLES
    return frames, blocked * compose_s / ((size - 2 * PIPE) / GRAIN * grain_s)


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    looped, blocked = (0.08, 0.06) if sys.argv[4:5] == ["weak"] else (0.6, 0.55)
    torch.manual_seed(seed)
    studio = Studio(careful=mode == "healthy")
    frames, effort = sizes(studio, looped, blocked)
    if mode == "healthy":
        effort = 0.0
    encoder = subprocess.Popen([sys.executable, "-c", ENCODER, str(effort)], stdin=subprocess.PIPE, bufsize=0)
    deliver(encoder, studio.piece(frames))
    writer, pending = ThreadPoolExecutor(1), None
    pieces, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        music = studio.piece(frames)  # ALT
        if mode == "fault":
            deliver(encoder, music)  # ALT
        else:
            if pending:
                pending.result()
            pending = writer.submit(deliver, encoder, music)
        pieces += 1
    writer.shutdown()
    encoder.stdin.close()
    try:
        encoder.wait(5)
    except subprocess.TimeoutExpired:
        encoder.kill()
        encoder.wait()
    print(json.dumps({"steps": pieces}))


main()
