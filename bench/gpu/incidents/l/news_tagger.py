"""Tag a news archive with a BERT encoder while a feed thread takes in new articles (JSON).

usage: news_tagger.py MODE SECONDS SEED [STRENGTH]
"""
import gc
import json
import multiprocessing
import random
import statistics
import sys
import threading
import time

import torch
from torch import nn
from transformers import BertConfig, BertModel

TRUTH = {"cause": ["gil-wait"], "culprit": "thread", "line": "# FAULT", "compound": False}

ARTICLES = []


def make_articles(seed):
    rng = random.Random(seed)
    for i in range(400):
        ARTICLES.append(json.dumps({
            "id": i,
            "source": "agency-%d" % rng.randrange(40),
            "title": " ".join("word%d" % rng.randrange(5000) for _ in range(12)),
            "terms": [rng.randrange(250) for _ in range(300)],
        }))


def render(count):
    return "[" + ",".join(ARTICLES[i % len(ARTICLES)] for i in range(count)) + "]"


def parse_in_helper(count):
    return len(json.loads(render(count)))


class Feed(threading.Thread):
    """Polls the feed: one delivery of `count` articles, then a pause."""

    def __init__(self, helper):
        super().__init__(name="feed", daemon=True)
        self.helper = helper
        self.pause = 0.02
        self.count = 0
        self.body = "[]"
        self.received = 0
        self.error = None
        self.stop = threading.Event()

    def resize(self, count):
        self.body = render(count)
        self.count = count

    def run(self):
        try:
            while not self.stop.wait(self.pause):
                if self.helper is not None:
                    self.received += self.helper.apply(parse_in_helper, (self.count,))
                else:
                    self.received += len(json.loads(self.body))
        except Exception as err:
            self.error = err


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11

    make_articles(seed)
    helper = None
    if mode == "healthy":
        helper = multiprocessing.get_context("fork").Pool(1)

    torch.manual_seed(seed)
    torch.set_grad_enabled(False)
    config = BertConfig(hidden_size=1024, num_hidden_layers=18, num_attention_heads=16,
                        intermediate_size=4096)
    with torch.device("cuda"):
        bert = BertModel(config, add_pooling_layer=False).to(torch.bfloat16).eval()
        tags = nn.Linear(1024, 64).to(torch.bfloat16)
        rows = 60 + 2 * (seed % 4)
        texts = [torch.randint(1000, 30000, (rows, 512)) for _ in range(8)]
    bert, tags = bert.cuda(), tags.cuda()

    def tag(i):
        states = bert(input_ids=texts[i % 8]).last_hidden_state
        return tags(states.mean(1)).argmax(-1)

    def step(i):
        best = tag(i)
        labels = best.cpu()  # FAULT
        return int(labels[0])

    times = []
    for i in range(26):
        t = time.perf_counter()
        step(i)
        times.append(time.perf_counter() - t)
    step_s = statistics.median(times[16:])
    period_s = step_s / (1 - share)

    # parse time per article
    body = render(2000)
    times = []
    for _ in range(5):
        t = time.perf_counter()
        len(json.loads(body))
        times.append(time.perf_counter() - t)
    article_s = statistics.median(times) / 2000

    feed = Feed(helper)
    feed.pause = 0.4 * step_s
    feed.resize(max(1, round((period_s - feed.pause) / article_s)))
    gc.collect()
    gc.freeze()
    feed.start()
    try:
        for _ in range(3):
            for i in range(3):
                step(i)
            t = time.perf_counter()
            for i in range(8):
                step(i)
            period = (time.perf_counter() - t) / 8
            if mode == "fault":
                # size of a delivery, from the pace that both threads reach together
                feed.resize(max(1, feed.count + round((period_s - period) / article_s)))
        for i in range(3):
            step(i)
        steps, checksum = 0, 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            checksum += step(steps)
            steps += 1
        elapsed = time.perf_counter() - start
    finally:
        feed.stop.set()
        feed.join()
        if helper is not None:
            helper.terminate()
            helper.join()
    if feed.error:
        raise feed.error
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * elapsed / steps,
                      "gpu_step_ms": 1e3 * step_s, "articles": feed.count,
                      "received": feed.received, "checksum": checksum}))


if __name__ == "__main__":
    main()
