"""DQN for a warehouse robot: replay on the GPU, part of each batch drawn by priority."""
import json
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": ["host-compute"],
    "culprit": "self",
    "line": "# FAULT",
    "alt_line": "# ALT",
    "compound": False,
}

MODE, SECONDS, SEED, STRENGTH = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
DEPTH = 16
SLOTS = 1 << DEPTH
OBS, ACTIONS, WIDTH = 256, 12, 4096
BATCH = 16384 + 1024 * (SEED % 3)


class SumTree:
    """Priorities of the replay slots, after the well-known article."""

    def __init__(self, priorities, rng):
        self.rng = rng
        self.tree = [0.0] * SLOTS + list(priorities)
        for node in range(SLOTS - 1, 0, -1):
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, count):
        tree, leaves = self.tree, []
        for _ in range(count):  # FAULT
            mass = self.rng.random() * tree[1]  # FAULT
            node = 1  # FAULT
            while node < SLOTS:  # FAULT
                node <<= 1  # FAULT
                left = tree[node]  # FAULT
                if mass > left:  # FAULT
                    mass -= left  # FAULT
                    node += 1  # FAULT
            leaves.append(node - SLOTS)  # FAULT
        return leaves

    def seen(self, leaves):
        """What was just replayed becomes a bit less interesting."""
        tree = self.tree
        for leaf in leaves:  # FAULT
            node = leaf + SLOTS  # FAULT
            change = -0.02 * (tree[node] - 0.05)  # FAULT
            while node:  # FAULT
                tree[node] += change  # FAULT
                node >>= 1  # FAULT


def q_net():
    sizes = [OBS] + [WIDTH] * 6
    parts = []
    for a, b in zip(sizes, sizes[1:]):
        parts += [nn.Linear(a, b), nn.ReLU()]
    parts.append(nn.Linear(WIDTH, ACTIONS))
    return nn.Sequential(*parts)


class Learner:
    def __init__(self):
        torch.manual_seed(SEED)
        with torch.device("cuda"):
            self.net, self.target = q_net().bfloat16(), q_net().bfloat16()
            self.obs = torch.randn(SLOTS, OBS, dtype=torch.bfloat16)
            self.next_obs = torch.randn(SLOTS, OBS, dtype=torch.bfloat16)
            self.action = torch.randint(0, ACTIONS, (SLOTS, 1))
            self.reward = torch.rand(SLOTS)
            self.loss_sum = torch.zeros(())
        rng = random.Random(SEED)
        start = [rng.random() ** 2 + 0.05 for _ in range(SLOTS)]
        self.tree = SumTree(start, rng)
        self.priority = torch.tensor(start, device="cuda")
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-5, fused=True)
        self.by_priority = 4096

    def draw_slots(self, on_host):
        n = self.by_priority
        if on_host:
            leaves = self.tree.draw(n)  # ALT
            self.tree.seen(leaves)  # ALT
            picked = torch.tensor(leaves, dtype=torch.int64, pin_memory=True).to("cuda", non_blocking=True)
        else:
            picked = torch.multinomial(self.priority, n, replacement=True)
            self.priority[picked] = self.priority[picked] * 0.98 + 0.001
        rest = torch.randint(0, SLOTS, (BATCH - n,), device="cuda")
        return torch.cat([picked, rest])

    def step(self, on_host):
        at = self.draw_slots(on_host)  # ALT
        with torch.no_grad():
            best = self.target(self.next_obs[at]).float().max(1).values
            goal = self.reward[at] + 0.98 * best
        value = self.net(self.obs[at]).float().gather(1, self.action[at]).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()


def main():
    learner = Learner()
    until = time.perf_counter() + 1.0
    count = 0
    while time.perf_counter() < until:
        learner.step(False)
        count += 1
        if count % 5 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for i in range(20):
        learner.step(False)
        if i == 4:
            launch = (time.perf_counter() - start) / 5
    torch.cuda.synchronize()
    gpu = (time.perf_counter() - start) / 20
    per_slot = []
    for _ in range(3):
        start = time.perf_counter()
        learner.tree.seen(learner.tree.draw(3000))
        per_slot.append((time.perf_counter() - start) / 3000)
    share = 0.42 if STRENGTH == "strong" else 0.12
    host = gpu / (1 - share) - min(launch, gpu / 2)
    learner.by_priority = max(256, min(BATCH - 256, int(host / sorted(per_slot)[1])))

    steps = 0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        learner.step(MODE == "fault")  # ALT
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps} loss {learner.loss_sum.item() / 20:.4f}", file=sys.stderr)
            learner.loss_sum.zero_()
        if steps % 200 == 0:
            learner.target.load_state_dict(learner.net.state_dict())
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
