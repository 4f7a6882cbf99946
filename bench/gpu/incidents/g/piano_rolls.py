"""Train a music transcriber: note lists become piano rolls on the GPU; an experiment tracker collects the losses."""
import ctypes, json, queue, signal, socket, sys, threading, time
import multiprocessing as mp

import torch
import torch.nn as nn
import torch.nn.functional as F

TRUTH = {
    "cause": [["sync-storm"], ["net-wait"]],
    "culprit": ["self", "child:run-tracker"],
    "line": ["# FAULT 1", "# FAULT 2"],
    "alt_line": "# ALT",
    "compound": True,
}
CLIPS, FRAMES, PITCHES, MELS, DIM, LAYERS, NOTES = 16, 640, 88, 229, 1024, 12, 960


def tracker(listener, delay):
    """The experiment tracker: acknowledges each record once its (far away) database has it."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"run-tracker", 0, 0, 0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    conn, _ = listener.accept()
    with conn.makefile("rwb") as f:
        for line in f:
            record = json.loads(line)
            time.sleep(delay.value)
            f.write(json.dumps({"ok": record["step"]}).encode() + b"\n")
            f.flush()


class TrackerLink:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.replies = self.sock.makefile("rb")
        self.backlog = queue.Queue()

    def log(self, step, loss):
        self.sock.sendall(json.dumps({"step": step, "loss": loss}).encode() + b"\n")
        return self.replies.readline()  # FAULT 2

    def log_in_background(self):
        while item := self.backlog.get():
            step, losses = item
            self.log(step, torch.stack(losses).mean().item())


class Transcriber(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True)
        self.front = nn.Linear(MELS, DIM)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, PITCHES)

    def forward(self, spectrum):
        return self.head(self.encoder(self.front(spectrum)))


def draw_rolls(notes, held):
    """Frame labels of a batch; notes are rows (clip, start, end, pitch), the first `held` rows are pedalled notes."""
    clip, start, end, pitch = notes.unbind(1)
    one = torch.ones(len(notes), device="cuda")
    edges = torch.zeros(CLIPS, FRAMES + 1, PITCHES, device="cuda")
    edges.index_put_((clip, start, pitch), one, accumulate=True)
    edges.index_put_((clip, end, pitch), -one, accumulate=True)
    rolls = (edges.cumsum(1)[:, :-1] > 0).float()
    for clip, start, end, pitch in notes[:held]:  # ALT
        rolls[clip, start:end, pitch] = 1.0  # FAULT 1
    return rolls


def make_batches(seed, n=6):
    g = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(n):
        start = torch.randint(FRAMES - 80, (NOTES,), generator=g)
        length = torch.randint(5, 80, (NOTES,), generator=g)
        clip = torch.randint(CLIPS, (NOTES,), generator=g)
        pitch = torch.randint(PITCHES, (NOTES,), generator=g)
        notes = torch.stack([clip, start, start + length, pitch], 1)
        spectrum = torch.rand(CLIPS, FRAMES, MELS, generator=g).to(torch.bfloat16)
        batches.append((spectrum.pin_memory(), notes.pin_memory()))
    return batches


def per_call(fn, n):
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for i in range(n):
        fn(i)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / n


def train(mode, seconds, seed, strength, port, delay):
    torch.manual_seed(seed)
    link, batches = TrackerLink(port), make_batches(seed)
    with torch.device("cuda"):
        model = Transcriber().to(torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(i, held):
        spectrum, notes = batches[i % len(batches)]
        rolls = draw_rolls(notes.to("cuda", non_blocking=True), held)  # ALT
        logits = model(spectrum.to("cuda", non_blocking=True))
        loss = F.binary_cross_entropy_with_logits(logits.float(), rolls)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    held, step_s = 0, [per_call(lambda i: step(i, 0), 10) for _ in range(2)][1]
    if mode == "fault":  # size both parts relative to the step of this machine
        part = step_s * (0.45 if strength == "strong" else 0.06)
        notes = batches[0][1].cuda()
        note_s = [per_call(lambda i: draw_rolls(notes, 50), 3) for _ in range(2)][1] / 50
        held, delay.value = min(NOTES, max(1, round(part / note_s))), part
    else:
        delay.value = 0.45 * step_s
        reporter = threading.Thread(target=link.log_in_background, name="reporter", daemon=True)
        reporter.start()

    steps, losses, end = 0, [], time.time() + seconds
    while time.time() < end:
        loss = step(steps, held)
        if mode == "fault":
            link.log(steps, loss.item())  # ALT
        else:
            losses.append(loss)
            if len(losses) == 25:
                link.backlog.put((steps, losses))
                losses = []
        steps += 1
    torch.cuda.synchronize()
    if mode == "healthy":
        link.backlog.put(None)
        reporter.join(5)
    return steps


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    strength = sys.argv[4] if len(sys.argv) > 4 else "strong"
    ctx = mp.get_context("fork")
    listener, delay = socket.create_server(("127.0.0.1", 0)), ctx.RawValue("d", 0.0)
    peer = ctx.Process(target=tracker, args=(listener, delay), daemon=True)
    peer.start()
    try:
        steps = train(mode, seconds, seed, strength, listener.getsockname()[1], delay)
    finally:
        peer.kill()
        peer.join(5)
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
