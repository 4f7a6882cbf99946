"""Policy-gradient training on a swarm of simulated drones; simulators run in processes.

usage: swarm_ppo.py MODE SECONDS SEED [STRENGTH]
"""
import array
import collections
import json
import math
import multiprocessing
import random
import sys
import time

if __name__ == "__main__":  # the simulators need none of it
    import numpy as np
    import torch
    from torch import nn

TRUTH = {"cause": [["input-starved"], ["host-compute"]], "culprit": "child",
         "culprits": ["child", "self"], "line": "# FAULT", "compound": True}

SIMS, DRONES, OBS, ACTIONS, KEEP = 4, 64, 64, 8, 32
SWARM = SIMS * DRONES
GAMMA, LAMBDA = 0.99, 0.95


def simulator(inbox, outbox, detail, seed):
    """Flies DRONES drones; `detail` is the number of integration steps of them all."""
    rng = random.Random(seed)
    state = [rng.uniform(-1, 1) for _ in range(DRONES)]
    obs = array.array("f", (rng.uniform(-1, 1) for _ in range(DRONES * OBS)))
    rewards = array.array("f", [0.0] * DRONES)
    while True:
        try:
            actions = inbox.recv_bytes()
        except (EOFError, OSError):
            actions = b""
        if not actions:
            return
        rounds = max(1, detail.value // DRONES)
        for i in range(DRONES):
            x, push = state[i], 0.2 * (actions[i] - 3.5)
            for _ in range(rounds):
                x += 0.001 * (push - math.sin(x))
            state[i] = obs[i * OBS] = x
            rewards[i] = -abs(x)
        outbox.send_bytes(obs.tobytes() + rewards.tobytes())


class Swarm:
    def __init__(self, seed):
        ctx = multiprocessing.get_context("spawn")
        self.detail = ctx.Value("q", DRONES, lock=False)
        self.to, self.back, self.procs = [], [], []
        for i in range(SIMS):
            their_in, our_out = ctx.Pipe(duplex=False)
            our_in, their_out = ctx.Pipe(duplex=False)
            proc = ctx.Process(target=simulator, daemon=True,
                               args=(their_in, their_out, self.detail, seed * 10 + i))
            proc.start()
            their_in.close()
            their_out.close()
            self.to, self.back = self.to + [our_out], self.back + [our_in]
            self.procs.append(proc)

    def send(self, actions):
        for i, pipe in enumerate(self.to):
            pipe.send_bytes(actions[i * DRONES:(i + 1) * DRONES].tobytes())

    def recv(self):
        """What the drones see, and their rewards."""
        parts, split = [], DRONES * OBS
        for pipe in self.back:
            parts.append(np.frombuffer(pipe.recv_bytes(), np.float32))  # FAULT
        return (np.concatenate([p[:split] for p in parts]).reshape(SWARM, OBS),
                np.concatenate([p[split:] for p in parts]))

    def close(self):
        for pipe in self.to:
            pipe.send_bytes(b"")
        for proc in self.procs:
            proc.join(2)
            proc.kill()
            proc.join()


def advantages(rewards, values):
    """Generalized advantage estimate, newest step first."""
    running, out, after = [0.0] * SWARM, [], values[-1]
    for reward, value in zip(reversed(rewards), reversed(values)):
        for i in range(SWARM):  # ALT
            delta = reward[i] + GAMMA * after[i] - value[i]  # FAULT
            running[i] = delta + GAMMA * LAMBDA * running[i]  # FAULT
        after = value
        out.append(running[:])
    return out


def mean_time(fn, span):
    n, t0 = 0, time.perf_counter()
    while time.perf_counter() - t0 < span:
        fn()
        n += 1
    return (time.perf_counter() - t0) / n


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    share = 0.27 if (sys.argv[4:] or ["strong"])[0] == "strong" else 0.10  # each
    swarm = Swarm(seed)
    torch.manual_seed(seed)
    width = 3840 + 128 * (seed % 3)
    sizes = [OBS] + [width] * 6
    with torch.device("cuda"):
        layers = [m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.GELU())]
        net = nn.Sequential(*layers, nn.Linear(width, ACTIONS + 1)).to(torch.bfloat16)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    seen = torch.randn(KEEP, SWARM, OBS, device="cuda", dtype=torch.bfloat16)
    acted = torch.zeros(KEEP, SWARM, dtype=torch.long, device="cuda")
    epochs = 1

    def act(view):
        """Choose actions; also remembers what was seen and done."""
        nonlocal seen, acted
        now = torch.from_numpy(view).to("cuda").to(torch.bfloat16)
        with torch.no_grad():
            out = net(now).float()
        noise = torch.empty(SWARM, ACTIONS, device="cuda").exponential_().log()
        move = (out[:, :ACTIONS] - noise).argmax(1)
        seen = torch.cat([seen[1:], now.unsqueeze(0)])
        acted = torch.cat([acted[1:], move.unsqueeze(0)])
        return move.to(torch.uint8), out[:, ACTIONS]

    def learn(advantage):
        for _ in range(epochs):
            opt.zero_grad(set_to_none=True)
            out = net(seen.view(-1, OBS)).float()
            logp = out[:, :ACTIONS].log_softmax(-1).gather(1, acted.view(-1, 1)).squeeze(1)
            gain = advantage.view(-1)
            loss = -(logp * gain).mean() + 0.1 * (out[:, ACTIONS] - gain).square().mean()
            loss.backward()
            opt.step()
        return loss

    flat = torch.zeros(KEEP, SWARM, device="cuda")
    mean_time(lambda: learn(flat).item(), 0.5)
    epochs = max(1, round(0.026 / mean_time(lambda: learn(flat).item(), 0.3)))
    mean_time(lambda: learn(flat).item(), 0.7)
    gpu_step = mean_time(lambda: learn(flat).item(), 0.8)

    # horizon of the estimate and detail of the simulation
    target = gpu_step * share / (1 - 2 * share)
    some = [[random.random() for _ in range(SWARM)] for _ in range(40)]
    horizon = max(KEEP, round(40 * target / mean_time(lambda: advantages(some, some), 0.3)))
    rewards = collections.deque(([0.0] * SWARM for _ in range(horizon)), maxlen=horizon)
    values = collections.deque(([0.0] * SWARM for _ in range(horizon)), maxlen=horizon)
    reward_grid, value_grid = torch.zeros(2, horizon, SWARM, device="cuda").unbind(0)
    age = torch.arange(horizon, device="cuda")
    age = age.unsqueeze(0) - age.unsqueeze(1)
    decay = torch.where(age >= 0, (GAMMA * LAMBDA) ** age.clamp(min=0).float(), 0.0)

    def fly():
        swarm.send(np.zeros(SWARM, np.uint8))
        return swarm.recv()

    swarm.detail.value = 20_000
    for _ in range(3):
        took = mean_time(fly, 0.3)
        swarm.detail.value = max(DRONES, int(swarm.detail.value * target / took))
    view, gained = fly()
    act(view)

    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        move, value = act(view)
        swarm.send(move.cpu().numpy())
        if mode == "fault":
            view, gained = swarm.recv()  # ALT
            rewards.append(gained.tolist())
            values.append(value.tolist())
            newest = advantages(rewards, values)[:KEEP]  # ALT
            newest = torch.tensor(newest[::-1], device="cuda")  # ALT
            loss = learn(newest).item()
        else:  # the simulators fly while the network learns from the step before
            reward_grid = torch.cat([reward_grid[1:], torch.from_numpy(gained).to("cuda")[None]])
            value_grid = torch.cat([value_grid[1:], value[None]])
            after = torch.cat([value_grid[1:], value_grid[-1:]])
            pending = learn((decay @ (reward_grid + GAMMA * after - value_grid))[-KEEP:])
            view, gained = swarm.recv()
            loss = pending.item()
        steps += 1
    wall = time.perf_counter() - start
    swarm.close()
    print(json.dumps({"steps": steps, "mode": mode, "step_ms": 1e3 * wall / steps,
                      "gpu_step_ms": 1e3 * gpu_step, "epochs": epochs, "horizon": horizon,
                      "detail": swarm.detail.value, "each_ms": 1e3 * target, "loss": loss}))


if __name__ == "__main__":
    main()
