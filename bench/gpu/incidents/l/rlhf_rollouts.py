"""Policy-gradient loop: the policy proposes answers, a reward service scores them over TCP.

usage: rlhf_rollouts.py MODE SECONDS SEED [STRENGTH]
"""
import asyncio
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
from torch import nn

TRUTH = {"cause": ["net-wait"], "culprit": "child", "line": "# FAULT", "compound": False}

VOCAB, WIDTH, HEADS = 8192, 2048, 16
PROMPT, LENGTH = 128, 768


def read_exactly(sock, size):
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def reward_service(listener, latency):
    """Stand-in for the remote judge; it needs `latency` seconds for a batch."""
    conn, _ = listener.accept()
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with conn:
        while True:
            head = read_exactly(conn, 4)
            if head is None:
                return
            body = read_exactly(conn, struct.unpack("!I", head)[0])
            if body is None:
                return
            answers = np.frombuffer(body, dtype=np.int32).reshape(-1, PROMPT)
            scores = ((answers % 7).mean(axis=1) / 7.0).astype(np.float32)
            time.sleep(latency.value)
            conn.sendall(scores.tobytes())


class RewardClient:
    def __init__(self, port, rows):
        self.rows = rows
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=None)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def submit(self, answers):
        body = answers.numpy().tobytes()
        self.sock.sendall(struct.pack("!I", len(body)) + body)

    def scores(self):
        data = b""
        while len(data) < 4 * self.rows:
            part = self.sock.recv(4 * self.rows - len(data))  # FAULT
            if not part:
                raise ConnectionError("reward service went away")
            data += part
        return list(struct.unpack("%df" % self.rows, data))

    def close(self):
        self.sock.close()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Policy(nn.Module):
    def __init__(self, layers=5):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.rows = 15 + seed % 3
        with torch.device("cuda"):
            self.policy = Policy().to(torch.bfloat16)
            self.contexts = [torch.randint(VOCAB, (self.rows, LENGTH)) for _ in range(8)]
        self.optim = torch.optim.SGD(self.policy.parameters(), lr=1e-5, fused=True)

    @torch.no_grad()
    def propose(self, i):
        logits = self.policy(self.contexts[i % 8][:, :PROMPT])
        return logits.argmax(-1)

    def update(self, i, answers, scores):
        ids = self.contexts[i % 8].clone()
        ids[:, -PROMPT:] = answers
        advantage = torch.tensor(scores, device="cuda")
        advantage = advantage - advantage.mean()
        logits = self.policy(ids[:, :-1])
        nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (nll.view(self.rows, -1).float().mean(1) * advantage).mean()
        loss.backward()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)


class Loop:
    def __init__(self, trainer, client, ahead):
        self.trainer, self.client, self.ahead = trainer, client, ahead
        self.steps = 0
        self.last = None

    def step(self):
        i = self.steps
        answers = self.trainer.propose(i)
        self.client.submit(answers.to(torch.int32).cpu())
        if self.ahead:
            # learn from the batch before while this one is being judged
            if self.last is not None:
                self.trainer.update(*self.last)
            self.last = (i, answers, self.client.scores())
        else:
            scores = self.client.scores()  # ALT
            self.trainer.update(i, answers, scores)
        self.steps += 1


async def heartbeat(loop, log):
    while True:
        await asyncio.sleep(1.0)
        log.append(loop.steps)


async def amain(mode, seconds, seed, share, port, latency):
    trainer = Trainer(seed)
    client = RewardClient(port, trainer.rows)
    try:
        # GPU time of propose + update, scores at hand
        times = []
        scores = [0.1 * k for k in range(trainer.rows)]
        for i in range(26):
            t = time.perf_counter()
            answers = trainer.propose(i)
            answers.to(torch.int32).cpu()
            trainer.update(i, answers, scores)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - t)
        step_s = statistics.median(times[16:])
        wait_s = step_s * share / (1 - share)

        # latency of the judge, less what the trip itself costs
        latency.value = 0.0
        probe = trainer.propose(0).to(torch.int32).cpu()
        times = []
        for _ in range(20):
            t = time.perf_counter()
            client.submit(probe)
            client.scores()
            times.append(time.perf_counter() - t)
        latency.value = max(wait_s - statistics.median(times), 0.5 * wait_s)

        loop = Loop(trainer, client, ahead=mode == "healthy")
        beats = []
        task = asyncio.create_task(heartbeat(loop, beats))
        for _ in range(5):
            loop.step()
            await asyncio.sleep(0)
        torch.cuda.synchronize()
        loop.steps = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            loop.step()
            await asyncio.sleep(0)
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        task.cancel()
    finally:
        client.close()
    return {"steps": loop.steps, "mode": mode, "step_ms": 1e3 * elapsed / loop.steps,
            "gpu_step_ms": 1e3 * step_s, "judge_ms": 1e3 * latency.value}


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    if mode not in ("fault", "healthy") or strength not in ("strong", "weak"):
        raise SystemExit("bad arguments")
    share = 0.42 if strength == "strong" else 0.11

    listener = socket.create_server(("127.0.0.1", 0))
    ctx = multiprocessing.get_context("fork")
    latency = ctx.Value("d", 0.0, lock=False)
    service = ctx.Process(target=reward_service, args=(listener, latency), daemon=True)
    service.start()
    port = listener.getsockname()[1]
    listener.close()
    try:
        result = asyncio.run(amain(mode, seconds, seed, share, port, latency))
    finally:
        service.join(timeout=2)
        if service.is_alive():
            service.terminate()
            service.join()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
