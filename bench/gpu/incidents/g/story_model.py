"""Train a small language model on stories; the run report lists the peak GPU memory of the steps."""
import json, statistics, sys, time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["alloc-churn"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}
VOCAB, DIM, LAYERS, TOKENS, STORIES = 16384, 1024, 12, 512, 20


class PeakMeter:
    """Peak memory of what runs inside the `with`; a clean measurement starts from an empty cache."""

    def __init__(self):
        self.clean_every, self.entered, self.peaks = 0, 0, []

    def __enter__(self):
        self.entered += 1
        if self.clean_every and self.entered % self.clean_every == 0:
            torch.cuda.empty_cache()  # FAULT
        torch.cuda.reset_peak_memory_stats()
        return self

    def __exit__(self, *exc):
        self.peaks.append(torch.cuda.max_memory_allocated())

    def report(self):
        return f"peak memory {max(self.peaks) / 2**30:.2f} GiB, typical {statistics.median(self.peaks) / 2**30:.2f} GiB"


class StoryModel(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True)
        self.words, self.places = nn.Embedding(VOCAB, DIM), nn.Embedding(TOKENS, DIM)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(TOKENS))

    def forward(self, ids):
        x = self.words(ids) + self.places.weight  # ALT
        return self.head(self.body(x, mask=self.mask, is_causal=True))  # ALT


class Training:
    def __init__(self, seed):
        torch.manual_seed(seed)
        with torch.device("cuda"):
            self.model = StoryModel().to(torch.bfloat16)
            stories = torch.randint(VOCAB, (8, STORIES, TOKENS + 1))
        self.inputs, self.targets = stories[:, :, :-1].contiguous(), stories[:, :, 1:].contiguous()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)
        self.meter = PeakMeter()

    def step(self, i):
        with self.meter:  # ALT
            logits = self.model(self.inputs[i % 8])  # ALT
            loss = F.cross_entropy(logits.flatten(0, 1).float(), self.targets[i % 8].flatten())  # ALT
            loss.backward()  # ALT
            self.opt.step()
            self.opt.zero_grad(set_to_none=True)
        return loss.detach()

    def step_seconds(self, n):
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for i in range(n):
            self.step(i)
        torch.cuda.synchronize()
        return (time.perf_counter() - t0) / n

    def choose_clean_steps(self, share):
        """Clean measurements cost time: make so many of them that they cost about `share` of a step on average."""
        plain = self.step_seconds(12)
        self.meter.clean_every = 1
        self.step_seconds(2)
        extra = max(1e-4, self.step_seconds(6) - plain)
        self.meter.clean_every = max(1, round(extra / (share * plain)))
        print(f"step {plain:.4f} s, clean {extra:.4f} s, every {self.meter.clean_every} steps", file=sys.stderr)

    def run(self, seconds):
        steps, losses, end = 0, [], time.time() + seconds
        while time.time() < end:
            losses.append(self.step(steps))
            steps += 1
            if len(losses) == 25:
                print("step", steps, "loss", round(torch.stack(losses).mean().item(), 4), file=sys.stderr)
                losses = []
        torch.cuda.synchronize()
        return steps


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    training = Training(seed)
    training.step_seconds(8)
    if mode == "fault":
        training.choose_clean_steps(0.85 if strength == "strong" else 0.11)
    steps = training.run(seconds)
    print(training.meter.report(), file=sys.stderr)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
