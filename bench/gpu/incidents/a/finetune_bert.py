"""Fine-tune a BERT text classifier (built from a config) and keep gradient statistics for the run report."""
import json
import random
import sys
import time

import torch
from transformers import BertConfig, BertForSequenceClassification

TRUTH = {
    "cause": ["sync-storm"],
    "culprit": "self",
    "line": "# FAULT",
    "compound": False,
}

STATS = {
    "norm": lambda g: torch.linalg.vector_norm(g, dtype=torch.float32),
    "max": torch.amax,
    "min": torch.amin,
    "mean": lambda g: g.mean(dtype=torch.float32),
    "absmax": lambda g: torch.linalg.vector_norm(g, ord=float("inf")),
    "l1": lambda g: torch.linalg.vector_norm(g, ord=1, dtype=torch.float32),
}


def make_batches(n, batch, seq, vocab, classes):
    batches = []
    for _ in range(n):
        ids = torch.randint(5, vocab, (batch, seq)).pin_memory()
        labels = torch.randint(0, classes, (batch,)).pin_memory()
        batches.append((ids, labels))
    return batches


def per_parameter_stats(model, names):
    """One scalar per parameter and statistic, as the experiment tracker wants them."""
    row = {}
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        for key in names:
            row[name + "/" + key] = STATS[key](p.grad).item()  # FAULT
    return row


class NormHistory:
    """Keeps gradient norms on the device; the report fetches them once in a while."""

    def __init__(self, every):
        self.every, self.rows = every, []

    def add(self, model):
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        self.rows.append(torch.stack(torch._foreach_norm(grads)))
        if len(self.rows) >= self.every:
            table = torch.stack(self.rows).float().cpu()
            self.rows.clear()
            return table.mean(0).tolist()
        return None


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    random.seed(seed)
    torch.manual_seed(seed)
    batch = 76 + 4 * random.randrange(4)
    seq = 240 + 16 * random.randrange(2)
    config = BertConfig(num_labels=6, hidden_dropout_prob=0.1)
    model = BertForSequenceClassification(config).to(device="cuda", dtype=torch.bfloat16)
    model.train()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    batches = make_batches(8, batch, seq, config.vocab_size, config.num_labels)
    names = list(STATS) if strength == "strong" else ["norm"]
    history = NormHistory(every=50)
    total = torch.zeros((), device="cuda")
    report = None

    def step(i):
        ids, labels = batches[i % len(batches)]
        ids = ids.to("cuda", non_blocking=True)
        labels = labels.to("cuda", non_blocking=True)
        out = model(input_ids=ids, labels=labels)
        out.loss.backward()
        total.add_(out.loss.detach())
        return out

    for i in range(5):  # warm-up
        step(i)
        opt.step()
        opt.zero_grad()
    torch.cuda.synchronize()

    steps, end = 0, time.time() + seconds
    while time.time() < end:
        step(steps)
        if mode == "fault":
            report = per_parameter_stats(model, names)
        else:
            report = history.add(model) or report
        opt.step()
        opt.zero_grad()
        steps += 1
        if steps % 200 == 0:
            print("step", steps, "mean loss", float(total) / steps, file=sys.stderr)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
