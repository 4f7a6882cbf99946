"""Values flats for estate agents: answers agents' lists from a model and a table of districts that another process renews."""
import json, multiprocessing, subprocess, sys, time
from multiprocessing.connection import Listener, wait

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"cause": ["lock-wait"], "culprit": "child:python", "line": "# FAULT", "alt_line": "# ALT"}

FLATS, BATCH, DISTRICTS, FEATURES, SALES = 512, 16, 256, 32, 4096
WIDTH, LAYERS = 8192, 16

AGENTS = r'''
import random, sys, threading, time
from multiprocessing.connection import Client
port, agents, seed, flats = map(int, sys.argv[1:5])
think = float(sys.argv[5])
def agent(number):
    rng = random.Random(seed * 100 + number)
    with Client(("127.0.0.1", port)) as office:
        while True:
            if think:
                time.sleep(rng.expovariate(1 / think))
            office.send_bytes(rng.randbytes(flats))
            office.recv_bytes()
for number in range(agents):
    threading.Thread(target=agent, args=(number,)).start()
'''


def as_table(shared):
    return np.frombuffer(shared, np.float32).reshape(DISTRICTS, FEATURES)


def renew(link, lock, shared, whole):
    """The process that keeps the table of price quantiles up to date with the last sales."""
    table, rng = as_table(shared), np.random.default_rng(0)
    sales = rng.lognormal(12, 0.4, (DISTRICTS, SALES)).astype(np.float32)

    def quantiles(rounds):
        fresh = table.copy()
        for number in range(rounds):
            district = number % DISTRICTS
            fresh[district] = np.log(np.sort(sales[district])[::SALES // FEATURES])  # ALT
        return fresh

    quantiles(64)
    begin = time.perf_counter()
    quantiles(256)
    one_s = (time.perf_counter() - begin) / 256
    link.send("ready")
    work_s, pause_s = link.recv()
    rounds = max(1, round(work_s / one_s))
    while not link.poll(pause_s):
        if whole:
            with lock:  # ALT
                table[:] = quantiles(rounds)  # ALT
        else:
            fresh = quantiles(rounds)
            with lock:
                table[:] = fresh


class Valuer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, 1)
        self.middle = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    @torch.inference_mode()
    def value(self, features):
        x = F.relu(self.first(torch.from_numpy(features).cuda().to(torch.bfloat16)))
        for layer in self.middle:
            x = x + 0.1 * F.relu(layer(x))
        return self.last(x)[:, 0].float().cpu().numpy()


class Office:
    def __init__(self, valuer, lock, shared):
        self.valuer, self.lock, self.table = valuer, lock, as_table(shared)

    def features(self, lists):
        districts = np.frombuffer(b"".join(lists), np.uint8)
        with self.lock:  # FAULT
            return self.table[districts]  # ALT

    def answer(self, agents):
        features = self.features([agent.recv_bytes() for agent in agents])  # ALT
        prices = self.valuer.value(features).reshape(len(agents), FLATS)
        for agent, row in zip(agents, prices):
            agent.send_bytes(row.tobytes())


def timed(function, times):
    begin = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    held, free = (1.5, 8.5) if sys.argv[4:5] == ["weak"] else (2.7, 1.3)       # in batches
    spawn = multiprocessing.get_context("spawn")
    lock, shared, (link, far) = spawn.Lock(), spawn.RawArray("f", DISTRICTS * FEATURES), spawn.Pipe()
    renewer = spawn.Process(target=renew, args=(far, lock, shared, mode == "fault"), daemon=True)
    renewer.start()
    far.close()
    torch.manual_seed(seed)
    with torch.device("cuda"):
        valuer = Valuer().to(torch.bfloat16).eval()
    office, sample = Office(valuer, lock, shared), np.zeros((BATCH * FLATS, FEATURES), np.float32)
    timed(lambda: valuer.value(sample), 4)
    batch_s = timed(lambda: valuer.value(sample), 6)
    count, think = (2 * BATCH, 0) if mode == "fault" else (4, 0.7)
    with Listener(("127.0.0.1", 0), backlog=64) as listener:
        client = subprocess.Popen([sys.executable, "-c", AGENTS, *map(str, (
            listener.address[1], count, seed, FLATS, think))], stderr=subprocess.DEVNULL)
        agents = [listener.accept() for _ in range(count)]
    link.recv()
    link.send((held * batch_s, free * batch_s))
    steps, end = 0, time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            office.answer(wait(agents, 15)[:BATCH])  # ALT
            steps += 1
    finally:
        client.kill()
        client.wait()
        renewer.kill()
        renewer.join()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
