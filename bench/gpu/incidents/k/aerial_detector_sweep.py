"""Sweeps aerial imagery with a ResNet-50 detector: every batch of crops is scored cell by cell and the
cells above the reporting floor become entries of the survey."""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

TRUTH = {"cause": ["sync-storm"], "culprit": "self", "line": "# FAULT", "compound": False}

CROP, CELLS = 224, 7 * 7


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        trunk = torchvision.models.resnet50(weights=None)
        self.trunk = nn.Sequential(*list(trunk.children())[:-2])
        self.score = nn.Conv2d(2048, 1, 1)
        self.box = nn.Conv2d(2048, 4, 1)

    def forward(self, crops):
        features = F.normalize(self.trunk(crops).float(), dim=1).to(crops.dtype)
        scores = self.score(features).float().sigmoid().flatten()
        boxes = self.box(features).float().permute(0, 2, 3, 1).reshape(-1, 4)
        return scores, boxes


class Imagery:
    """A few batches of crops, decoded earlier, that are swept again and again."""

    def __init__(self, crops):
        shape = (4, crops, 3, CROP, CROP)
        self.raw = torch.randint(256, shape, dtype=torch.uint8, device="cuda")

    def batch(self, number):
        crops = self.raw[number % len(self.raw)].to(torch.bfloat16)
        return crops.div_(128.0).sub_(1.0).contiguous(memory_format=torch.channels_last)


class Survey:
    """Keeps the running list of what was found where."""

    def __init__(self, quota, floor, fetch_first):
        self.quota, self.floor, self.fetch_first = quota, floor, fetch_first
        self.found, self.latest = 0, None

    def above_floor(self, ranked):
        """How many of the ranked scores may be reported."""
        count = 0
        for place in range(self.quota):
            if float(ranked[place]) >= self.floor:  # FAULT
                count += 1
        return count

    def add(self, scores, boxes):
        ranked, order = scores.topk(self.quota)
        count = self.above_floor(ranked.tolist() if self.fetch_first else ranked)  # ALT
        self.latest = boxes[order[:count]].cpu()
        self.found += count


class Sweep:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.crops = 256 + 32 * (seed % 3)
        with torch.device("cuda"):
            self.detector = Detector()
        self.detector.to(torch.bfloat16, memory_format=torch.channels_last).eval()
        self.imagery = Imagery(self.crops)

    @torch.inference_mode()
    def advance(self, number, survey):
        scores, boxes = self.detector(self.imagery.batch(number))
        survey.add(scores, boxes)

    def batch_time(self):
        plain, spent = Survey(2000, 0.2, fetch_first=True), []
        for number in range(12):
            began = time.perf_counter()
            self.advance(number, plain)
            spent.append(time.perf_counter() - began)
        return statistics.median(spent[4:])

    def look_time(self):
        ranked, spent = torch.rand(500, device="cuda"), []
        probe = Survey(500, 0.2, fetch_first=False)
        for _ in range(5):
            began = time.perf_counter()
            probe.above_floor(ranked)
            spent.append(time.perf_counter() - began)
        return statistics.median(spent) / probe.quota


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10

    sweep = Sweep(seed)
    took, look = sweep.batch_time(), sweep.look_time()
    quota = min(sweep.crops * CELLS, max(50, round(took * share / (1 - share) / look)))
    print(f"batch {took * 1e3:.1f} ms, {quota} cells looked at", file=sys.stderr)

    survey = Survey(quota, 0.2, fetch_first=mode == "healthy")
    batches, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        sweep.advance(batches, survey)
        batches += 1
    print(f"{survey.found} cells reported", file=sys.stderr)
    print(json.dumps({"steps": batches}))


if __name__ == "__main__":
    main()
