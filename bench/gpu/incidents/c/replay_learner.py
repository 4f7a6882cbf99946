"""Off-policy learner: an actor process fills a shared replay ring, the learner trains a large Q network from it."""
import ctypes
import json
import multiprocessing
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": [["lock-wait"], ["sync-storm"]], "culprit": ["child:python3", "self"],
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

SLOTS, WIDTH, BATCH, ACTIONS, CHUNK = 131072, 128, 16384, 18, 256


def as_frames(memory):
    return np.frombuffer(memory, np.uint8).reshape(SLOTS, WIDTH)


def actor(lock, memory, episode_s, rest_s, stop, seed):
    frames, rng, slot, learner = as_frames(memory), np.random.default_rng(seed), 0, os.getppid()
    while not stop.value and os.getppid() == learner:
        with lock:
            begin = time.perf_counter()
            while True:
                frames[slot:slot + CHUNK] = rng.integers(0, 256, (CHUNK, WIDTH), dtype=np.uint8)
                slot = (slot + CHUNK) % SLOTS
                if time.perf_counter() - begin >= episode_s.value:
                    break
        time.sleep(rest_s.value)


def q_network():
    hidden = [layer for _ in range(8) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
    layers = [nn.Linear(WIDTH, 4096), nn.ReLU(), *hidden, nn.Linear(4096, ACTIONS)]
    return nn.Sequential(*layers).to("cuda", torch.bfloat16)


class Learner:
    def __init__(self, lock, memory, seed):
        torch.manual_seed(seed)
        self.lock, self.frames, self.rng = lock, as_frames(memory), np.random.default_rng(seed + 1)
        self.online, self.target = q_network(), q_network()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.SGD(self.online.parameters(), lr=1e-4, momentum=0.9)
        self.priorities = np.ones(SLOTS, np.float32)
        self.exact_rows = 0

    def sample(self):
        start = int(self.rng.integers(SLOTS - BATCH))
        with self.lock:  # FAULT
            return start, self.frames[start:start + BATCH].copy()

    def reprioritize(self, start, error):
        if self.exact_rows:
            values = [error[row].item() for row in range(self.exact_rows)]  # ALT
        else:
            values = error.cpu().numpy()
        self.priorities[start:start + len(values)] = values

    def step(self):
        start, frames = self.sample()
        states = torch.from_numpy(frames).to("cuda").to(torch.bfloat16).div_(255)
        actions = torch.randint(ACTIONS, (BATCH, 1), device="cuda")
        with torch.no_grad():
            future = self.target(states.roll(-1, 0)).amax(1)
            wanted = states[:, 0] + 0.99 * future
        error = wanted - self.online(states).gather(1, actions).squeeze(1)
        loss = F.smooth_l1_loss(error, torch.zeros_like(error))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.reprioritize(start, error.detach().float().abs())

    def time_steps(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.step()
        return (time.perf_counter() - begin) / count


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    weak = sys.argv[4:5] == ["weak"]
    context = multiprocessing.get_context("fork")
    lock, memory = context.Lock(), context.RawArray(ctypes.c_uint8, SLOTS * WIDTH)
    episode_s, rest_s = context.RawValue("d", 0.0), context.RawValue("d", 0.02)
    stop = context.RawValue("i", 0)
    player = context.Process(target=actor, args=(lock, memory, episode_s, rest_s, stop, seed), daemon=True)
    player.start()
    try:
        learner = Learner(lock, memory, seed)
        learner.time_steps(10)
        if mode == "fault":
            extra_s = (0.12 if weak else 0.7) * learner.time_steps(20)
            error = torch.rand(BATCH, device="cuda")
            error[0].item()
            begin = time.perf_counter()
            for row in range(2000):
                error[row].item()
            learner.exact_rows = min(BATCH, max(1, round(extra_s * 2000 / (time.perf_counter() - begin))))
            cycle_s = learner.time_steps(20) + extra_s
            rest_s.value = 0.2 * cycle_s
            episode_s.value = 0.8 * cycle_s
            learner.time_steps(3)
        steps, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            learner.step()
            steps += 1
    finally:
        stop.value = 1
        player.join(5)
        player.terminate()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
