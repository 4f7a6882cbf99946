"""Maps land cover from satellite scenes: every scene is classified several times, flipped and rolled, and the votes added."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["pageable-copy"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

SCENES, TILES, BANDS, SIZE, WIDTH, CLASSES = 4, 16, 13, 512, 128, 11


class Mapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(BANDS, WIDTH, 4, stride=2, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(4))
        self.head = nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, tiles):
        x = F.relu(self.stem(tiles))
        for conv in self.body:
            x = x + F.relu(conv(x))
        return self.head(x)


class Survey:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.scenes = [torch.rand(TILES, BANDS, SIZE, SIZE) for _ in range(SCENES)]
        self.model = Mapper().to("cuda", torch.bfloat16, memory_format=torch.channels_last).eval()
        self.loading = torch.cuda.Stream()

    def pin(self):
        self.scenes = [scene.pin_memory() for scene in self.scenes]

    def upload(self, number):
        return self.scenes[number % SCENES].to("cuda")  # FAULT

    def prefetch(self, number):
        """Starts the copy of a pinned scene beside whatever the GPU computes."""
        with torch.cuda.stream(self.loading):
            return self.scenes[number % SCENES].to("cuda", non_blocking=True)

    def arrived(self, scene):
        torch.cuda.current_stream().wait_stream(self.loading)
        scene.record_stream(torch.cuda.current_stream())
        return scene

    @torch.inference_mode()
    def launch(self, scene, votes):
        """The share of each class in the scene, from so many views of it."""
        tiles = scene.to(torch.bfloat16, memory_format=torch.channels_last)
        total = torch.zeros(TILES, CLASSES, SIZE // 2, SIZE // 2, device="cuda", dtype=torch.bfloat16)
        for vote in range(votes):
            view = tiles.roll(2 * vote, 3)
            total += self.model(view).softmax(1).roll(-vote, 3)
        return torch.histc(total.argmax(1).float(), CLASSES, 0, CLASSES)


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.1 if sys.argv[4:5] == ["weak"] else 0.55
    survey = Survey(seed)
    scene = survey.upload(0)
    survey.launch(scene, 3)
    few_s, many_s = (timed(lambda: survey.launch(scene, votes).tolist(), 3) for votes in (1, 9))
    vote_s = (many_s - few_s) / 8
    del scene
    survey.upload(1)
    copy_s = timed(lambda: survey.upload(2), 4)
    # a launch takes few_s for the first vote and vote_s for each further one
    votes = max(1, 1 + round((copy_s * (1 - idle) / idle - few_s) / vote_s))
    if mode == "healthy":
        survey.pin()
        upcoming = survey.prefetch(0)
    steps, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        if mode == "fault":
            counts = survey.launch(survey.upload(steps), votes)  # ALT
        else:
            scene = survey.arrived(upcoming)
            upcoming = survey.prefetch(steps + 1)
            counts = survey.launch(scene, votes)
        counts = counts.tolist()
        steps += 1
        if steps % 50 == 0:
            print(f"scene {steps}: water {100 * counts[0] / sum(counts):.1f} %", flush=True)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


main()
