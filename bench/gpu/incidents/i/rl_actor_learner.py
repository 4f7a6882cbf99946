"""Actor-learner reinforcement learning: actor processes simulate and send rollouts through a
queue, the learner does two policy gradient epochs on each and publishes a version number."""
import json
import multiprocessing as mp
import sys
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "cause": ["input-starved"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
# There are too few actor processes for the pace of the learner, which waits for rollouts at the queue.

START = time.monotonic()
ROWS, OBS, ACTIONS = 4096, 64, 18


def actor(rank, seed, rollouts, sim_cost, version):
    """Plays with the newest policy version and sends one rollout after the other."""
    rng = np.random.default_rng(1000 * seed + rank)
    while sim_cost.value <= 0.0:
        time.sleep(0.005)
    state = rng.standard_normal((64, OBS)).astype(np.float32)
    while True:
        done_at = time.perf_counter() + sim_cost.value * rng.uniform(0.95, 1.05)
        frames = []
        while time.perf_counter() < done_at:
            force = np.tanh(state * np.float32(0.5) + np.float32(1e-3 * (version.value % 97)))
            state = np.float32(0.97) * state + np.float32(0.1) * force
            frames.append(state)
            frames = frames[-(ROWS // 64):]
        while len(frames) < ROWS // 64:
            frames.append(state)
        obs = np.concatenate(frames).astype(np.float16)
        act = rng.integers(0, ACTIONS, ROWS, dtype=np.int64)
        ret = obs[:, 0].astype(np.float32)
        rollouts.put((obs, act, ret))


class ActorCritic(nn.Module):
    def __init__(self, width=4096, depth=6):
        super().__init__()
        layers = [nn.Linear(OBS, width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.pi, self.v = nn.Linear(width, ACTIONS), nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class Learner:
    def __init__(self):
        with torch.device("cuda"):
            self.net = ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-4, fused=True)

    def update(self, obs, act, ret, epochs=2):
        obs = torch.from_numpy(obs).to("cuda").float()
        act, ret = torch.from_numpy(act).to("cuda"), torch.from_numpy(ret).to("cuda")
        for _ in range(epochs):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits, value = self.net(obs)
            advantage = ret - value.float()
            logp = F.log_softmax(logits.float(), dim=-1).gather(1, act[:, None]).squeeze(1)
            loss = -(logp * advantage.detach()).mean() + 0.5 * advantage.square().mean()
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    ctx = mp.get_context("fork")
    rollouts = ctx.Queue(maxsize=8)
    sim_cost, version = ctx.Value("d", 0.0, lock=False), ctx.Value("q", 0, lock=False)
    # the actors start before the GPU is touched and wait for the go
    n_actors = 2 if mode == "fault" else 6
    actors = [ctx.Process(target=actor, args=(r, seed, rollouts, sim_cost, version), daemon=True)
              for r in range(n_actors)]
    for p in actors:
        p.start()

    updates, losses = 0, deque(maxlen=200)
    try:
        torch.manual_seed(seed)
        learner = Learner()
        rng = np.random.default_rng(seed)
        trial = (rng.standard_normal((ROWS, OBS)).astype(np.float16),
                 rng.integers(0, ACTIONS, ROWS, dtype=np.int64),
                 rng.standard_normal(ROWS).astype(np.float32))
        for _ in range(4):
            learner.update(*trial)
        t = time.perf_counter()
        for _ in range(8):
            learner.update(*trial)
        update_s = (time.perf_counter() - t) / 8

        # length of an episode, in time; two actors were enough for the old, slower learner
        share = (0.85 if strength == "strong" else 0.15) * (1 + 0.03 * (seed % 3))
        sim_cost.value = 2 * update_s * (1 + share)
        while time.monotonic() < deadline:
            obs, act, ret = rollouts.get(timeout=10)  # FAULT
            losses.append(learner.update(obs, act, ret))
            updates += 1
            version.value = updates
    finally:
        for p in actors:
            p.terminate()
        for p in actors:
            p.join(timeout=3)
    print(f"updates={updates} loss={np.mean(losses):.4f} actors={n_actors} update_ms={update_s * 1e3:.1f}")
    print(json.dumps({"steps": updates}), flush=True)


if __name__ == "__main__":
    main()
