"""Actor-critic training on chained pendulums that a simulator process steps at the other end of a socket."""
import json
import socket
import subprocess
import sys
import time
from itertools import accumulate

import numpy as np
import torch
from torch import nn

TRUTH = {"cause": [["net-wait"], ["host-compute"]], "culprit": ["child:python", "self"],
         "line": "# FAULT", "alt_line": "# ALT", "compound": True}

WORLDS, LINKS, HORIZON, BATCH, GAMMA, DECAY = 8192, 8, 8, 16384, 0.98, 0.93

SIMULATOR = r'''
import socket, sys
import numpy as np
port, worlds, links, seed = map(int, sys.argv[1:5])
angle, speed = np.random.default_rng(seed).standard_normal((2, worlds, links), dtype=np.float32)
sock = socket.create_connection(("127.0.0.1", port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
inbox = bytearray(4 + 4 * worlds)
while sock.recv_into(inbox, 0, socket.MSG_WAITALL) == len(inbox):
    torque = np.frombuffer(inbox, np.float32, worlds, 4)
    for _ in range(int.from_bytes(inbox[:4], "little")):
        pull = np.sin(angle) - 0.5 * np.sin(np.roll(angle, 1, axis=1) - angle)
        speed = 0.99 * speed - 0.02 * pull
        speed[:, 0] += 0.02 * torque
        angle += 0.02 * speed
    sock.sendall(np.concatenate((angle, np.cos(angle).mean(1, keepdims=True)), 1).tobytes())
'''


class Simulator:
    def __init__(self, seed):
        with socket.create_server(("127.0.0.1", 0)) as door:
            arguments = map(str, (door.getsockname()[1], WORLDS, LINKS, seed))
            self.child = subprocess.Popen([sys.executable, "-c", SIMULATOR, *arguments])
            self.sock = door.accept()[0]
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.state = torch.empty(WORLDS, LINKS + 1, pin_memory=True)
        self.inbox, self.skip = memoryview(self.state.numpy()).cast("B"), 1

    def advance(self, torque):
        self.sock.sendall(self.skip.to_bytes(4, "little") + torque.float().cpu().numpy().tobytes())
        self.sock.recv_into(self.inbox, 0, socket.MSG_WAITALL)  # FAULT
        return self.state.to("cuda", non_blocking=True)

    def close(self):
        self.sock.close()
        self.child.kill()
        self.child.wait()


class ActorCritic(nn.Sequential):
    def __init__(self, width=2048, depth=6):
        hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
        super().__init__(nn.Linear(LINKS, width), nn.Tanh(), *hidden, nn.Linear(width, 2))

    def forward(self, angles):
        return super().forward(angles.bfloat16()).float().unbind(-1)


class Learner:
    def __init__(self, simulator, seed, in_python):
        torch.manual_seed(seed)
        self.simulator, self.in_python, self.updates = simulator, in_python, 40
        self.model = ActorCritic().to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5, momentum=0.9)
        self.angles = simulator.advance(torch.zeros(WORLDS))[:, :LINKS]

    @torch.no_grad()
    def collect(self):
        steps = []
        for _ in range(HORIZON):
            mean, value = self.model(self.angles)
            torque = (mean + 0.3 * torch.randn_like(mean)).clamp(-2.0, 2.0)
            state = self.simulator.advance(torque)
            steps.append((self.angles, torque, value, state[:, LINKS]))
            self.angles = state[:, :LINKS]
        angles, torque, value, reward = map(torch.stack, zip(*steps))
        after = torch.cat((value[1:], self.model(self.angles)[1][None]))
        return angles, torque, value, reward + GAMMA * after - value

    def advantages(self, deltas):
        if self.in_python:
            rows = deltas.flip(0).T.tolist()
            sums = [list(accumulate(row, lambda a, d: max(-9.0, min(9.0, d + DECAY * a)))) for row in rows]  # ALT
            return torch.from_numpy(np.array(sums, np.float32)).to("cuda").T.flip(0)
        for step in reversed(range(HORIZON - 1)):
            deltas[step].add_(deltas[step + 1], alpha=DECAY).clamp_(-9.0, 9.0)
        return deltas

    def update(self, angles, torque, goal, gain):
        pick = torch.randint(len(gain), (BATCH,), device="cuda")
        mean, value = self.model(angles[pick])
        loss = nn.functional.mse_loss(value, goal[pick]) + (gain[pick] * (torque[pick] - mean).square()).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def step(self):
        angles, torque, value, deltas = self.collect()
        gain = self.advantages(deltas)
        flat = [part.flatten(0, 1) for part in (angles, torque, value + gain, gain)]
        for _ in range(self.updates):
            self.update(*flat)
        return flat

    def balance(self, share):
        simulator, flat, deltas = self.simulator, self.step(), torch.randn(HORIZON, WORLDS, device="cuda")
        sums_s = seconds_each(8, lambda: self.advantages(deltas))
        update_s = seconds_each(15, lambda: self.update(*flat))
        quick_s = seconds_each(20, lambda: simulator.advance(flat[1][:WORLDS]))
        simulator.skip = 9
        skip_s = (seconds_each(20, lambda: simulator.advance(flat[1][:WORLDS])) - quick_s) / 8
        simulator.skip = max(1, round(1 + (sums_s / HORIZON - quick_s) / skip_s))
        self.updates = max(1, round(sums_s / (share * update_s)))


def seconds_each(count, action):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        action()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def main():
    mode, seconds, simulator = sys.argv[1], float(sys.argv[2]), Simulator(int(sys.argv[3]))
    try:
        learner, steps = Learner(simulator, int(sys.argv[3]), in_python=mode == "fault"), 0
        learner.step()
        if mode == "fault":
            learner.balance(0.08 if sys.argv[4:5] == ["weak"] else 0.75)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            learner.step()
            steps += 1
    finally:
        simulator.close()
    print(json.dumps({"steps": steps}))


main()
