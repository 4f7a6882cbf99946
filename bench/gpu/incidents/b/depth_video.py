"""Scores video clips. Frames come from a decoder ring; depth maps were added by another team."""
import json
import sys
import time

import numpy as np
import torch

TRUTH = {"cause": ["pageable-copy"], "culprit": "self", "line": "# FAULT"}

RING = 3


def seconds_for(fn, repeat=8):
    fn()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeat):
        fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / repeat


class ClipModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 128, 4, stride=4)
        self.body = torch.nn.ModuleList(torch.nn.Conv2d(128, 128, 3, padding=1) for _ in range(12))

    def forward(self, frames, depth):
        x = frames.to(torch.bfloat16).to(memory_format=torch.channels_last) / 255
        x = self.stem(x)
        for conv in self.body:
            x = x + torch.relu(conv(x))
        return x.float().mean() + depth.mean()


class Feed:
    """Ring of decoded clips in host memory, uploaded one clip ahead on a copy stream."""

    def __init__(self, seed, frames_per_clip):
        rng = np.random.default_rng(seed)
        shape = (frames_per_clip, 3, 512, 512)
        self.frames = [torch.from_numpy(rng.integers(0, 255, shape, dtype=np.uint8)).pin_memory()
                       for _ in range(RING)]
        self.rng, self.depth, self.pinned_depth = rng, [], []
        self.stream = torch.cuda.Stream()

    def add_depth(self, values, pin):
        self.depth = [self.rng.random(values, dtype=np.float32) for _ in range(RING)]
        if pin:
            self.pinned_depth = [torch.from_numpy(d).pin_memory() for d in self.depth]

    def upload(self, n):
        with torch.cuda.stream(self.stream):
            frames = self.frames[n % RING].to("cuda", non_blocking=True)
            depth = self.pinned_depth[n % RING].to("cuda", non_blocking=True) if self.pinned_depth else None
            return frames, depth, self.stream.record_event()


def score_clip(model, feed, n, uploaded):
    frames, depth, ready = uploaded
    torch.cuda.current_stream().wait_event(ready)
    frames.record_stream(torch.cuda.current_stream())
    if depth is None:
        depth = torch.from_numpy(feed.depth[n % RING]).cuda()  # FAULT
    else:
        depth.record_stream(torch.cuda.current_stream())
    return model(frames, depth)


@torch.inference_mode()
def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.11 if sys.argv[4:5] == ["weak"] else 1.1
    torch.manual_seed(seed)
    model = ClipModel().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
    feed = Feed(seed, frames_per_clip=64 + 4 * (seed % 4))

    frames, no_depth = feed.frames[0].cuda(), torch.zeros(16, device="cuda")
    clip_s = seconds_for(lambda: model(frames, no_depth))
    probe = np.ones(16 << 20, np.float32)
    bytes_per_s = probe.nbytes / seconds_for(lambda: torch.from_numpy(probe).cuda())
    feed.add_depth(int(share * clip_s * bytes_per_s / 4), pin=mode == "healthy")

    clips, total, previous = 0, 0.0, None
    uploaded = feed.upload(0)
    end = time.time() + seconds
    while time.time() < end:
        upcoming = feed.upload(clips + 1)
        score = score_clip(model, feed, clips, uploaded)
        uploaded = upcoming
        if previous is not None:
            total += previous.item()            # one clip behind: the GPU stays busy
        previous = score
        clips += 1
    torch.cuda.synchronize()
    print(json.dumps({"steps": clips}))


if __name__ == "__main__":
    main()
