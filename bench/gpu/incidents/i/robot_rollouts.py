"""Closed loop rollouts of a manipulation policy: simulated arms on the host, the policy on the
GPU, the control thread pinned to a core, telemetry recorders running next to it."""
import json
import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import torch
from torch import nn

TRUTH = {
    "cause": ["cpu-preempted"],
    "culprit": "child",
    "line": "# FAULT",
    "compound": False,
}
# The telemetry recorder processes are pinned to the core of the control thread and take it away, so the control
# thread comes late to fetch actions and to launch the next step.

START = time.monotonic()
JOINTS = 24

RECORDER = r'''
import os, sys, time, zlib
core, burst, pause, parent = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
os.sched_setaffinity(0, {core})
page = os.urandom(8192)
packed = 0
while os.getppid() == parent:
    begin = time.process_time()
    while time.process_time() - begin < burst:
        packed += len(zlib.compress(page, 6))
    if pause > 0:
        time.sleep(pause)
'''


@contextlib.contextmanager
def recorders(core, count, burst, pause):
    """Telemetry compression in processes of their own."""
    args = [sys.executable, "-c", RECORDER, str(core), str(burst), str(pause), str(os.getpid())]
    procs = [subprocess.Popen(args) for _ in range(count)]
    try:
        yield procs
    finally:
        for p in procs:
            p.terminate()
        for p in procs:
            p.wait(timeout=5)


class ArmFleet:
    """Joint positions and velocities of many simulated arms."""

    def __init__(self, arms, rng):
        self.pos = rng.uniform(-1, 1, (arms, JOINTS)).astype(np.float32)
        self.vel = np.zeros_like(self.pos)
        self.goal = rng.uniform(-1, 1, (arms, JOINTS)).astype(np.float32)

    def observe(self, out):
        np.subtract(self.goal, self.pos, out=out[:, :JOINTS])
        out[:, JOINTS:] = self.vel

    def step(self, torque, dt=np.float32(0.01)):
        self.vel *= np.float32(0.98)
        self.vel += dt * torque
        self.pos += dt * self.vel


class Policy:
    def __init__(self, arms, width=8192, depth=4):
        with torch.device("cuda"):
            layers = [nn.Linear(2 * JOINTS, width), nn.ReLU()]
            for _ in range(depth):
                layers += [nn.Linear(width, width), nn.ReLU()]
            self.net = nn.Sequential(*layers, nn.Linear(width, JOINTS), nn.Tanh()).to(torch.bfloat16).eval()
        self.staging = torch.empty(arms, 2 * JOINTS, pin_memory=True)
        self.obs_np = self.staging.numpy()

    @torch.inference_mode()
    def act(self):
        obs = self.staging.to("cuda", non_blocking=True).to(torch.bfloat16)
        action = self.net(obs).float().cpu()  # FAULT
        return action.numpy()


def rollout(policy, fleet, deadline, horizon):
    """Up to horizon control steps; gives the number made and the mean goal error."""
    made = 0
    while made < horizon and time.monotonic() < deadline:
        fleet.observe(policy.obs_np)
        fleet.step(policy.act())
        made += 1
    return made, float(np.abs(fleet.goal - fleet.pos).mean())


def main():
    mode, seconds, seed, strength = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    deadline = START + seconds
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    arms = 2048 + 128 * (seed % 4)
    policy = Policy(arms)
    rollout(policy, ArmFleet(arms, rng), deadline, 20)

    cores = sorted(os.sched_getaffinity(0))
    control_core = cores[(1 + seed) % len(cores)]
    spare_core = cores[(1 + seed + len(cores) // 2) % len(cores)]
    recorder_core = control_core if mode == "fault" else spare_core
    if strength == "strong":
        count, burst, pause = 2, 0.5, 0.0
    else:
        count, burst, pause = 1, 0.004, 0.026 + 0.001 * (seed % 4)

    steps, episodes, errors = 0, 0, []
    with recorders(recorder_core, count, burst, pause):
        # steady latency: the control thread keeps to one core
        os.sched_setaffinity(0, {control_core})
        while time.monotonic() < deadline:
            made, error = rollout(policy, ArmFleet(arms, rng), deadline, 250)
            steps += made
            episodes += 1
            errors.append(error)
    print(f"steps={steps} episodes={episodes} error={np.mean(errors):.4f} core={control_core}/{recorder_core}")
    print(json.dumps({"steps": steps}), flush=True)


if __name__ == "__main__":
    main()
