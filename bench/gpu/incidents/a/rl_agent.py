"""Policy-gradient agent: an environment process fills observation slots, the learner trains and archives replays."""
import json, os, subprocess, sys, tempfile, time
import multiprocessing as mp

import numpy as np

TRUTH = {
    "cause": ["child-wait"],
    "culprit": "child:gzip",
    "line": "# FAULT",
    "compound": False,
}
OBS, ACTIONS, SLOTS = 64, 18, 4


def environment(slots, free, ready, n_envs, seed):
    """Vectorised environment; writes the next observations of all environments into a free slot."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((5, n_envs, OBS), dtype=np.float32)
    state, t = np.zeros((n_envs, OBS), dtype=np.float32), 0
    while True:
        k = free.get()
        if k is None:
            return
        state *= 0.97
        state += 0.2 * noise[t % 5]
        np.frombuffer(slots[k], dtype=np.float32).reshape(n_envs, OBS)[:] = state
        ready.put(k)
        t += 1


class ReplayArchive:
    """Compressed replay files, newest few only."""

    def __init__(self, folder, nbytes, seed, wait):
        self.folder, self.wait, self.n, self.job = folder, wait, 0, None
        self.data = np.random.default_rng(seed).standard_normal(nbytes // 4, dtype=np.float32)

    def store(self):
        if self.job is not None and self.job.poll() is None:
            return  # the last one is still being packed
        path = os.path.join(self.folder, "replay-%d.bin" % (self.n % 4))
        self.n += 1
        self.data.tofile(path)
        if self.wait:
            subprocess.run(["gzip", "-6", "-f", path], check=True)  # FAULT
        else:
            self.job = subprocess.Popen(["gzip", "-6", "-f", path])


class Learner:
    def __init__(self, n_envs, seed):
        import torch
        self.torch = torch
        torch.manual_seed(seed)
        nn, width = torch.nn, 6144
        self.net = nn.Sequential(nn.Linear(OBS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, ACTIONS + 1)).to("cuda", torch.bfloat16)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-5, fused=True)
        self.stages = [torch.empty(n_envs, OBS, pin_memory=True) for _ in range(2)]

    def update(self, stage, epochs=5):
        torch = self.torch
        obs = stage.to("cuda", non_blocking=True).bfloat16()
        reward, old = obs[:, 0].float(), None
        for _ in range(epochs):
            out = self.net(obs).float()
            logp = torch.log_softmax(out[:, :-1], -1)
            if old is None:
                old = logp.detach()
                action = torch.multinomial(old.exp(), 1)
            advantage = (reward - out[:, -1]).detach()
            ratio = (logp - old).gather(1, action).squeeze(1).exp()
            loss = -(ratio.clamp(0.8, 1.2) * advantage).mean() + (reward - out[:, -1]).square().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return (old - logp.detach()).mean()


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    ctx, n_envs = mp.get_context("fork"), 16384 + 1024 * (seed % 3)
    slots = [ctx.RawArray("f", n_envs * OBS) for _ in range(SLOTS)]
    free, ready = ctx.SimpleQueue(), ctx.SimpleQueue()
    env = ctx.Process(target=environment, args=(slots, free, ready, n_envs, seed), daemon=True)
    env.start()
    for k in range(SLOTS):
        free.put(k)
    learner = Learner(n_envs, seed)

    def receive(stage):
        k = ready.get()
        stage.numpy()[:] = np.frombuffer(slots[k], dtype=np.float32).reshape(n_envs, OBS)
        free.put(k)

    def iterate(i):
        kl = learner.update(learner.stages[i % 2])
        receive(learner.stages[(i + 1) % 2])  # the next batch, while the GPU works
        return kl.item()

    receive(learner.stages[0])
    for i in range(12):
        if i == 6:
            t0 = time.perf_counter()
        iterate(i)
    every = max(2, round(0.25 / ((time.perf_counter() - t0) / 6)))
    with tempfile.TemporaryDirectory(prefix="replays-") as folder:
        archive = ReplayArchive(folder, 8_000_000 if strength == "strong" else 500_000, seed, wait=mode == "fault")
        steps, end = 0, time.time() + seconds
        while time.time() < end:
            iterate(steps)
            steps += 1
            if steps % every == 0:
                archive.store()
        if archive.job is not None:
            archive.job.wait()
    free.put(None)
    env.join()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
