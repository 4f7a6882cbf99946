"""Batch job: segment the tile files of a folder and keep a journal of the coarse masks."""
import collections, json, os, queue, sys, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torchvision.models.segmentation import fcn_resnet50

TRUTH = {
    "cause": ["io-wait"],
    "culprit": "self",
    "line": "# FAULT",
    "compound": False,
}
SIDE, FILES, DEPTH, ROTATE = 256, 12, 4, 32 << 20


def write_tiles(folder, tiles, seed):
    rng, paths = np.random.default_rng(seed), []
    base = rng.integers(0, 256, (tiles, 3, SIDE, SIDE), dtype=np.uint8)
    for i in range(FILES):
        paths.append(os.path.join(folder, "tiles-%02d.raw" % i))
        np.roll(base, i, axis=0).tofile(paths[-1])
    return paths


def read_tiles(path, buf):
    with open(path, "rb", buffering=0) as f:
        f.readinto(buf.view(-1).numpy())
    return buf


class DurableJournal:
    """Every record is on the disk before the next batch starts.

    Records are repeated for the replicas as long as the batch's share of time for durability lasts.
    """

    def __init__(self, path, share):
        self.file, self.share, self.debt = open(path, "wb", buffering=0), share, 0.0

    def commit(self, record):
        self.debt += self.share
        while self.debt > 0.0:
            t0 = time.perf_counter()
            self.file.write(record)  # ALT
            os.fsync(self.file.fileno())  # FAULT
            if self.file.tell() > ROTATE:
                self.file.seek(0)
            self.debt -= time.perf_counter() - t0

    def close(self):
        self.file.close()


class LazyJournal:
    """A thread writes the records; the disk has them all when the job is over."""

    def __init__(self, path):
        self.file, self.records = open(path, "wb"), queue.Queue(maxsize=16)
        self.thread = threading.Thread(target=self.write, daemon=True)
        self.thread.start()

    def write(self):
        while (record := self.records.get()) is not None:
            self.file.write(record)
            if self.file.tell() > ROTATE:
                self.file.seek(0)

    def commit(self, record):
        self.records.put(record)

    def close(self):
        self.records.put(None)
        self.thread.join()
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()


class Segmenter:
    def __init__(self, tiles):
        net = fcn_resnet50(weights=None, weights_backbone=None, num_classes=8, aux_loss=False)
        self.net = net.eval().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.out = [torch.empty(tiles, SIDE // 4, SIDE // 4, dtype=torch.uint8).pin_memory() for _ in range(DEPTH)]
        self.done, self.n = [torch.cuda.Event() for _ in range(DEPTH)], 0

    @torch.inference_mode()
    def launch(self, buf):
        k, self.n = self.n % DEPTH, self.n + 1
        x = buf.to("cuda", non_blocking=True)
        x = x.to(torch.bfloat16, memory_format=torch.channels_last).div_(255.0)
        logits = self.net(x)["out"]
        self.out[k].copy_(logits[:, :, ::4, ::4].argmax(1).to(torch.uint8), non_blocking=True)
        self.done[k].record()
        return k, buf

    def finish(self, k):
        self.done[k].synchronize()
        return self.out[k].numpy().tobytes()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = True
    tiles = 64 + 8 * (seed % 3)
    segmenter = Segmenter(tiles)
    with tempfile.TemporaryDirectory(prefix="tiles-", dir=".") as folder, ThreadPoolExecutor(2) as readers:
        paths, reads, asked = write_tiles(folder, tiles, seed), collections.deque(), 0

        def ask(buf):
            nonlocal asked
            reads.append(readers.submit(read_tiles, paths[asked % FILES], buf))
            asked += 1

        for _ in range(DEPTH):
            ask(torch.empty(tiles, 3, SIDE, SIDE, dtype=torch.uint8).pin_memory())

        def batch_ahead(before):
            """Starts the next batch, then takes the result of the one before."""
            job, record = segmenter.launch(reads.popleft().result()), None
            if before is not None:
                record = segmenter.finish(before[0])
                ask(before[1])
            return job, record

        before = None
        for i in range(26):  # warm-up and the time of a batch
            if i == 10:
                t0 = time.perf_counter()
            before, _ = batch_ahead(before)
        step_time = (time.perf_counter() - t0) / 16
        segmenter.finish(before[0])
        ask(before[1])
        share = 0.44 if strength == "strong" else 0.09
        path = os.path.join(folder, "journal")
        durable = step_time * share / (1.0 - share)
        journal = DurableJournal(path, durable) if mode == "fault" else LazyJournal(path)

        steps, before, end = 0, None, time.time() + seconds
        while time.time() < end:
            if mode == "fault":
                k, buf = segmenter.launch(reads.popleft().result())
                record = segmenter.finish(k)
                ask(buf)
            else:
                before, record = batch_ahead(before)
            if record is not None:
                journal.commit(record)
            steps += 1
        torch.cuda.synchronize()
        journal.close()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
