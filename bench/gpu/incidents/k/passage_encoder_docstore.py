"""Re-embeds a passage collection: token blocks come from the document store over TCP, a BERT encoder
turns them into vectors and the vectors go into the index bank."""
import json
import multiprocessing
import socket
import statistics
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertModel

TRUTH = {"cause": ["net-wait"], "culprit": "child", "line": "# FAULT", "compound": False}

LENGTH, VOCABULARY, ASK = 128, 30_000, struct.Struct("<QI")


def document_store(listener, passages, seed):
    """Answers each request with a block of passages, after reading its cold segments."""
    rng = np.random.default_rng(seed)
    blocks = [rng.integers(0, VOCABULARY, (passages, LENGTH), dtype=np.int32).tobytes() for _ in range(8)]
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with link:
        while len(head := link.recv(ASK.size, socket.MSG_WAITALL)) == ASK.size:
            block, segments = ASK.unpack(head)
            for _ in range(segments):
                time.sleep(0.0005)
            link.sendall(blocks[block % len(blocks)])


class StoreClient:
    def __init__(self, port, passages):
        self.link = socket.create_connection(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.slots = [torch.empty(passages, LENGTH, dtype=torch.int32).pin_memory() for _ in range(2)]
        self.taken, self.segments = 0, 0

    def ask(self, block):
        self.link.sendall(ASK.pack(block, self.segments))

    def take(self):
        slot = self.slots[self.taken % 2]
        view, got = memoryview(slot.numpy()).cast("B"), 0
        while got < len(view):
            more = self.link.recv_into(view[got:])  # FAULT
            if more == 0:
                raise ConnectionError("the document store hung up")
            got += more
        self.taken += 1
        return slot

    def segment_cost(self):
        took = {}
        for segments in (0, 40):
            self.segments, spent = segments, []
            for _ in range(5):
                began = time.perf_counter()
                self.ask(0)
                self.take()
                spent.append(time.perf_counter() - began)
            took[segments] = statistics.median(spent)
        return (took[40] - took[0]) / 40


class Encoder:
    def __init__(self, passages, seed):
        torch.manual_seed(seed)
        config = BertConfig(vocab_size=VOCABULARY, hidden_size=1024, num_hidden_layers=10, num_attention_heads=16,
                            intermediate_size=4096, max_position_embeddings=256, hidden_dropout_prob=0.0,
                            attention_probs_dropout_prob=0.0)
        with torch.device("cuda"):
            self.bert = BertModel(config, add_pooling_layer=False).to(torch.bfloat16).eval()
        self.vectors = torch.empty(passages, 1024, dtype=torch.bfloat16).pin_memory()
        self.done = torch.cuda.Event()

    @torch.no_grad()
    def launch(self, tokens):
        ids = tokens.to("cuda", non_blocking=True).long()
        hidden = self.bert(input_ids=ids).last_hidden_state
        self.vectors.copy_(F.normalize(hidden.mean(1), dim=-1), non_blocking=True)
        self.done.record()


def refresh(client, encoder, bank, seconds, ahead):
    client.ask(0)
    tokens, block = client.take(), 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        block += 1
        if ahead:
            client.ask(block)
        encoder.launch(tokens)
        if ahead:
            tokens = client.take()
        encoder.done.synchronize()
        bank[block % len(bank)] = encoder.vectors.view(torch.int16).numpy()
        if not ahead:
            client.ask(block)
            tokens = client.take()  # ALT
    return block


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    share = 0.41 if strength == "strong" else 0.10
    passages = 512 + 32 * (seed % 4)

    listener = socket.create_server(("127.0.0.1", 0))
    store = multiprocessing.get_context("fork").Process(
        target=document_store, args=(listener, passages, seed), daemon=True)
    store.start()
    client = StoreClient(listener.getsockname()[1], passages)
    listener.close()

    encoder = Encoder(passages, seed)
    client.ask(0)
    sample, spent = client.take(), []
    for _ in range(12):
        began = time.perf_counter()
        encoder.launch(sample)
        encoder.done.synchronize()
        spent.append(time.perf_counter() - began)
    took, per_segment = statistics.median(spent[4:]), client.segment_cost()
    client.segments = max(1, round(took * share / (1 - share) / per_segment))
    print(f"block {took * 1e3:.1f} ms, {client.segments} cold segments a block", file=sys.stderr)

    bank = np.zeros((16, passages, 1024), dtype=np.int16)
    blocks = refresh(client, encoder, bank, seconds, ahead=mode == "healthy")
    client.link.close()
    store.join(timeout=5)
    if store.is_alive():
        store.terminate()
    print(json.dumps({"steps": blocks}))


if __name__ == "__main__":
    main()
