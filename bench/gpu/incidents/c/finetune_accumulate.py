"""Finetunes a GPT-2 style model in half precision with gradient accumulation and a journal of used samples."""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

TRUTH = {"cause": [["alloc-churn"], ["io-wait"]], "culprit": "self",
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

VOCAB, CONTEXT, MICRO_BATCH, ACCUMULATE = 8192, 512, 32, 4
RECORD, SLOTS = 16384, 2048


class Journal:
    """Remembers which samples were consumed, so that a restart can go on from there."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(dir=".", prefix="journal-")
        self.file.truncate(RECORD * SLOTS)
        self.entries = 0

    def append(self, record):
        os.pwrite(self.file.fileno(), record, self.entries % SLOTS * RECORD)
        self.entries += 1

    def append_durably(self, record):
        self.append(record)
        os.fsync(self.file.fileno())  # ALT


class Finetuner:
    def __init__(self, seed):
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=1024, n_layer=12, n_head=16,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
                            bos_token_id=0, eos_token_id=0)
        self.model = GPT2LMHeadModel(config).cuda().train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        self.journal = Journal()
        self.trims_per_micro, self.trims_due = 0.0, 0.0
        self.records_per_step, self.records_due = 0.0, 0.0

    def micro_batch(self, ids):
        device_ids = ids.to("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            logits = self.model(input_ids=device_ids).logits[:, :-1]
        loss = F.cross_entropy(logits.reshape(-1, VOCAB).float(), device_ids[:, 1:].reshape(-1))
        self.scaler.scale(loss / ACCUMULATE).backward()
        return loss.item()

    def trim(self):
        torch.cuda.empty_cache()  # FAULT

    def save_progress(self, ids):
        record = ids.numpy().tobytes()[:RECORD]
        self.records_due += self.records_per_step
        if not self.records_per_step:
            self.journal.append(record)
        while self.records_due >= 1.0:
            self.journal.append_durably(record)
            self.records_due -= 1.0

    def step(self):
        total = 0.0
        for _ in range(ACCUMULATE):
            ids = torch.randint(VOCAB, (MICRO_BATCH, CONTEXT))
            total += self.micro_batch(ids)
            self.trims_due += self.trims_per_micro
            if self.trims_due >= 1.0:
                self.trim()
                self.trims_due -= 1.0
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=False)
        self.save_progress(ids)
        return total / ACCUMULATE


def seconds_each(count, *actions):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        for action in actions:
            action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def set_cadence(tuner, share):
    ids = torch.randint(VOCAB, (MICRO_BATCH, CONTEXT))
    step_s = seconds_each(4, tuner.step)
    micro_s = seconds_each(6, lambda: tuner.micro_batch(ids))
    seconds_each(1, lambda: tuner.micro_batch(ids), tuner.trim)
    trim_s = max(1e-4, seconds_each(4, lambda: tuner.micro_batch(ids), tuner.trim) - micro_s)
    seconds_each(5, lambda: tuner.journal.append_durably(bytes(RECORD)))
    record_s = seconds_each(30, lambda: tuner.journal.append_durably(bytes(RECORD)))
    tuner.optimizer.zero_grad(set_to_none=False)
    tuner.trims_per_micro = min(1.0, share * step_s / ACCUMULATE / trim_s)
    tuner.records_per_step = share * step_s / record_s


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("fault", "healthy"))
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("strength", nargs="?", default="strong")
    options = parser.parse_args()
    tuner = Finetuner(options.seed)
    for _ in range(3):
        loss = tuner.step()
    if options.mode == "fault":
        set_cadence(tuner, 0.12 if options.strength == "weak" else 0.7)
    steps, end = 0, time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        loss = tuner.step()
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps} loss {loss:.3f} scale {tuner.scaler.get_scale():.0f}", flush=True)
    tuner.journal.file.close()
    print(json.dumps({"steps": steps}))


main()
