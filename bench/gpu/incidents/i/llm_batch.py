"""Offline scoring of a prompt backlog with a small Llama; every scored batch passes through
the safety filter, a separate command line tool that speaks JSON lines."""
import contextlib
import json
import subprocess
import sys
import threading
import time

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

TRUTH = {
    "cause": ["child-wait"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
# After each batch the scoring thread waits for the verdict line of the filter subprocess, which takes a good
# part of a batch's time to answer.

START = time.monotonic()
VOCAB = 8192

FILTER_TOOL = r'''
import json, sys, time
budget = float(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    stop = time.perf_counter() + budget
    flagged, rules = 0, 0
    while time.perf_counter() < stop:
        rules += 1
        flagged = sum(1 for s in job["scores"] if s < -9.5 - 0.0001 * (rules % 7))
    print(json.dumps({"batch": job["batch"], "flagged": flagged}), flush=True)
'''


@contextlib.contextmanager
def filter_tool(budget):
    tool = subprocess.Popen([sys.executable, "-c", FILTER_TOOL, f"{budget:.6f}"], text=True, bufsize=1,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if tool.stdout.readline().strip() != "ready":
            raise RuntimeError("filter tool did not start")
        yield tool
    finally:
        tool.terminate()
        tool.wait(timeout=5)


class Report:
    def __init__(self):
        self.batches, self.flagged = 0, 0

    def add(self, verdict):
        self.batches += 1
        self.flagged += verdict["flagged"]

    def follow(self, stream):
        for line in stream:
            self.add(json.loads(line))


def build_model():
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=2048, intermediate_size=5632, num_hidden_layers=8,
                         num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=2048)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    return model.to("cuda", torch.bfloat16).eval()


@torch.inference_mode()
def score(model, ids):
    """Mean log likelihood of each prompt."""
    ids = ids.to("cuda", non_blocking=True)
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    nll = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return (-nll.view(ids.shape[0], -1).mean(1)).tolist()


def send(tool, batch_no, scores):
    tool.stdin.write(json.dumps({"batch": batch_no, "scores": scores}) + "\n")
    tool.stdin.flush()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    model = build_model()
    length = 896 + 64 * (seed % 4)
    backlog = [torch.randint(0, VOCAB, (16, length)).pin_memory() for _ in range(12)]

    for i in range(4):
        score(model, backlog[i])
    t = time.perf_counter()
    for i in range(6):
        score(model, backlog[i])
    batch_s = (time.perf_counter() - t) / 6
    share = (0.80 if strength == "strong" else 0.11) * (1 + 0.04 * (seed % 3))

    report = Report()
    done = 0
    with filter_tool(share * batch_s) as tool:
        follower = None
        if mode == "healthy":
            # verdicts come in while the next batch is being scored
            follower = threading.Thread(target=report.follow, args=(tool.stdout,), daemon=True)
            follower.start()
        while time.monotonic() < deadline:
            scores = score(model, backlog[done % len(backlog)])
            send(tool, done, scores)
            if mode == "fault":
                verdict = json.loads(tool.stdout.readline())  # FAULT
                report.add(verdict)
            done += 1
        tool.stdin.close()
        if follower is not None:
            follower.join(timeout=2)
    print(f"batches={done} judged={report.batches} flagged={report.flagged} batch_ms={batch_s * 1e3:.1f}")
    print(json.dumps({"steps": done}), flush=True)


if __name__ == "__main__":
    main()
