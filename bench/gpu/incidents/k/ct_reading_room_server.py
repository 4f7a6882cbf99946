"""Serves lesion volumes of archived CT studies to a reading room: a small asyncio server that unpacks a
study with the archive's converter program and segments it on the GPU."""
import asyncio
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import OrderedDict

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": ["child-wait"], "culprit": "child", "line": "# FAULT", "compound": False}

SHAPE, STUDIES = (64, 96, 96), 6

CONVERTER = """
import sys, zlib
with open(sys.argv[1], "rb") as packed, open(sys.argv[2], "wb") as plain:
    plain.write(zlib.decompress(packed.read()))
"""


def reading_room(port, gate, seed):
    """The viewers: they ask for one study after another, at their own pace."""
    pause, seconds = gate.recv()
    due = time.perf_counter()
    until, number = due + seconds, seed
    with socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rw") as lines:
        try:
            while time.perf_counter() < until:
                number += 1
                lines.write(json.dumps({"study": number % STUDIES, "viewer": f"session-{number}"}) + "\n")
                lines.flush()
                if not lines.readline():
                    break
                due = max(due + pause, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))
        except ConnectionError:
            return


class Archive:
    """Studies on disk as the scanner left them, and the most recent ones unpacked on the device."""

    def __init__(self, folder, seed, shared):
        self.folder, self.shared, self.unpacked = folder, shared, OrderedDict()
        rng = np.random.default_rng(seed)
        for study in range(STUDIES):
            voxels = rng.integers(0, 8, SHAPE, dtype=np.uint8) * 16
            with open(self.path(study, "packed"), "wb") as file:
                file.write(zlib.compress(voxels.tobytes(), 1))

    def path(self, study, kind):
        return os.path.join(self.folder, f"study{study}.{kind}")

    def convert(self, study):
        source, plain = self.path(study, "packed"), self.path(study, "raw")
        subprocess.run([sys.executable, "-I", "-S", "-c", CONVERTER, source, plain], check=True)  # FAULT
        return np.fromfile(plain, dtype=np.uint8).reshape(SHAPE)

    def volume(self, study, viewer):
        key = study if self.shared else (study, viewer)
        if key not in self.unpacked:
            if len(self.unpacked) >= 32:
                self.unpacked.popitem(last=False)
            self.unpacked[key] = torch.from_numpy(self.convert(study)).cuda()  # ALT
        return self.unpacked[key]


class Segmenter:
    def __init__(self, seed):
        torch.manual_seed(seed)
        layers, width = [nn.Conv3d(1, 32, 3, padding=1), nn.ReLU()], 32
        for _ in range(4):
            layers += [nn.Conv3d(width, width, 3, padding=1), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv3d(width, 2, 1)).to("cuda", torch.bfloat16)

    @torch.inference_mode()
    def lesion_voxels(self, volume):
        scaled = volume.to(torch.bfloat16)[None, None] / 64.0 - 1.0
        return int((self.net(scaled).argmax(1) == 1).sum())


async def serve(archive, segmenter, listener, seconds):
    served = 0

    async def session(reader, writer):
        nonlocal served
        while line := await reader.readline():
            ask = json.loads(line)
            volume = archive.volume(ask["study"], ask["viewer"])
            reply = {"study": ask["study"], "voxels": segmenter.lesion_voxels(volume)}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
            served += 1
        writer.close()

    server = await asyncio.start_server(session, sock=listener)
    await asyncio.sleep(seconds + 0.1)
    server.close()
    return served


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.40 if strength == "strong" else 0.10

    listener = socket.create_server(("127.0.0.1", 0))
    gate, far_gate = multiprocessing.Pipe()
    viewers = multiprocessing.get_context("fork").Process(
        target=reading_room, args=(listener.getsockname()[1], far_gate, seed), daemon=True)
    viewers.start()
    folder = tempfile.mkdtemp(prefix="archive_")
    try:
        archive, segmenter, spent = Archive(folder, seed, shared=mode == "healthy"), Segmenter(seed), []
        for study in range(STUDIES):
            began = time.perf_counter()
            archive.convert(study)
            spent.append(time.perf_counter() - began)
            segmenter.lesion_voxels(archive.volume(study, "start-up"))
        pause = statistics.median(spent) / share
        print(f"converter {statistics.median(spent) * 1e3:.1f} ms, a request every {pause * 1e3:.0f} ms", file=sys.stderr)
        gate.send((pause, seconds))
        served = asyncio.run(serve(archive, segmenter, listener, seconds))
    finally:
        viewers.join(timeout=3)
        if viewers.is_alive():
            viewers.terminate()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"steps": served}))


if __name__ == "__main__":
    main()
