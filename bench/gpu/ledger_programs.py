"""The programs that ledger.py traces. Each has its own way to keep a GPU busy and to leave it idle.

    python3 bench/gpu/ledger_programs.py NAME SECONDS SEED

The last line that it prints is JSON: `steps`, when each of them began, and `marks`, which are [from_ns, to_ns, line] of
what the host does while the GPU has little or nothing to do. Such a part is named in a comment at the end of each of
its lines; the first line stands for it, and `lines` has all of them. Times are CLOCK_MONOTONIC.
"""

import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LONGEST = 8192, 512
# More than these marks, and times of steps, are not kept.
MOST_KEPT = 20_000


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def marked_lines() -> dict[str, list[int]]:
    """The lines of this file that belong to a part."""
    lines: dict[str, list[int]] = {}
    for number, text in enumerate(Path(__file__).read_text().splitlines(), 1):
        if found := re.search(r"\S  # part: (\w+)$", text):
            lines.setdefault(found[1], []).append(number)
    return lines


class Run:
    """How long a program goes on, and what it has done so far."""

    def __init__(self, name: str, seconds: float, seed: int):
        self.name, self.seconds, self.seed, self.random = name, seconds, seed, random.Random(seed)
        self.lines = marked_lines()
        self.count = 0
        self.began_ns: list[int] = []
        self.marks: list[list[int]] = []

    def steps(self) -> Iterator[int]:
        end_ns = now_ns() + int(self.seconds * 1e9)
        while now_ns() < end_ns:
            self.begin_step()
            yield self.count

    def begin_step(self) -> None:
        self.count += 1
        if len(self.began_ns) < MOST_KEPT:
            self.began_ns.append(now_ns())

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        from_ns = now_ns()
        yield
        if len(self.marks) < MOST_KEPT:
            self.marks.append([from_ns, now_ns(), self.lines[name][0]])

    def say(self) -> None:
        lines = {lines[0]: lines for lines in self.lines.values()}
        told = {"steps": self.count, "began_ns": self.began_ns, "marks": self.marks, "lines": lines,
                "waits_each_step": self.name in WAIT_EACH_STEP, "is_idle_in_marks": self.name in IDLE_IN_MARKS}
        print(json.dumps(told), flush=True)


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int = 8):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_wide = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        split = self.queries_keys_values(self.before_attention(x)).view(rows, length, 3, self.heads, -1)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.narrow(F.gelu(self.wide(self.before_wide(x))))


class LanguageModel(nn.Module):
    """A transformer with random weights that says which token comes next."""

    def __init__(self, layers: int, width: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LONGEST, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return self.out(self.norm(self.blocks(x)))


def some_tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), device="cuda")


def trainer(layers: int, width: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A step of training, which leaves the loss on the GPU."""
    model = LanguageModel(layers, width).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def generator(layers: int, width: int, length: int) -> Callable[[], int]:
    """Says the next token of a text, one at a time."""
    model = LanguageModel(layers, width).cuda().eval()
    text = some_tokens(1, length)

    @torch.no_grad()
    def next_token() -> int:
        nonlocal text
        token = model(text)[:, -1].argmax(-1, keepdim=True)
        text = torch.cat([text[:, 1:], token], dim=1)
        return token.item()

    return next_token


def tokenize(words: int) -> int:
    """Computes in Python, as a tokenizer does."""
    checksum = 0
    for word in range(words):  # part: tokenize
        checksum += word * word % 7  # part: tokenize
    return checksum


def seconds_of(work: Callable[[], object]) -> float:
    """How long it takes with the wait for the GPU, once it has warmed up."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(5):
        work()
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / 5


def words_for(seconds: float) -> int:
    """How many words to tokenize for about so long."""
    words = 200_000
    began = time.perf_counter()
    tokenize(words)
    return int(words * seconds / (time.perf_counter() - began)) + 1


def training(run: Run) -> None:
    """The loss is read in each step."""
    step, tokens = trainer(6, 1024), some_tokens(8, LONGEST + 1)
    seconds_of(lambda: step(tokens))
    for _ in run.steps():
        step(tokens).item()


def training_free(run: Run) -> None:
    """The loss is read now and then, so that the host is ahead of the GPU."""
    step, tokens = trainer(6, 1024), some_tokens(8, LONGEST + 1)
    seconds_of(lambda: step(tokens))
    for number in run.steps():
        loss = step(tokens)
        if number % 20 == 0:
            loss.item()


def decode(run: Run) -> None:
    """A step is a token, and the host needs each of them."""
    next_token, said = generator(8, 768, 64), []
    seconds_of(next_token)
    for _ in run.steps():
        said.append(next_token())


class Texts(torch.utils.data.Dataset):
    """Rows of tokens that take a worker process some time to make."""

    def __init__(self, words: int):
        self.words = words

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        first = sum(word * word % 7 for word in range(self.words))  # part: load
        return (torch.arange(257) + first + index) % VOCABULARY


def dataloader(run: Run) -> None:
    """Two workers make batches; that takes about twice as long as a step of training does."""
    step, tokens = trainer(4, 768), some_tokens(8, 257)
    step_s = seconds_of(lambda: step(tokens))
    texts = Texts(words_for(step_s * 2 * 2 / 8))
    batches = iter(torch.utils.data.DataLoader(texts, batch_size=8, num_workers=2))
    for _ in run.steps():
        with run.part("load"):
            rows = next(batches)  # part: load
        step(rows.cuda()).item()


def host_gap(run: Run) -> None:
    """After each step the host computes for about as long as the step took."""
    step, tokens = trainer(4, 768), some_tokens(8, 257)
    words = words_for(seconds_of(lambda: step(tokens)))
    for _ in run.steps():
        step(tokens).item()
        with run.part("tokenize"):
            tokenize(int(words * run.random.uniform(0.8, 1.2)))  # part: tokenize


@torch.no_grad()
def graph_replay(run: Run) -> None:
    """The GPU's work is one call, and the host computes for half as long in between."""
    model, tokens = LanguageModel(8, 1024).cuda().eval(), some_tokens(8, 256)
    graph = captured(lambda: model(tokens))
    words = words_for(seconds_of(graph.replay) / 2)
    for _ in run.steps():
        graph.replay()
        torch.cuda.synchronize()
        with run.part("tokenize"):
            tokenize(int(words * run.random.uniform(0.8, 1.2)))  # part: tokenize


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The graph of it. What it does for the first time cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


# Asks the server over two connections, with pauses, for a time.
CLIENT = """
import random, socket, sys, threading, time
port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])

def ask(number):
    pauses, end = random.Random(10 * seed + number), time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", port)) as server:
        while time.monotonic() < end:
            server.sendall(b"next")
            server.recv(64)
            time.sleep(pauses.expovariate(1 / 0.06))

for number in range(2):
    threading.Thread(target=ask, args=(number,)).start()
"""


def server(run: Run) -> None:
    """A thread for each of two connections; a step is a request, answered with four tokens."""
    next_token, turn = generator(8, 768, 64), threading.Lock()
    seconds_of(next_token)

    def serve(connection: socket.socket) -> None:
        with connection:
            while connection.recv(64):
                with turn:
                    run.begin_step()
                    answer = [next_token() for _ in range(4)]
                connection.sendall(str(answer).encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        port = listener.getsockname()[1]
        client = subprocess.Popen([sys.executable, "-c", CLIENT, str(port), str(run.seconds), str(run.seed)])
        threads = [threading.Thread(target=serve, args=(listener.accept()[0],)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.wait(30)


def two_streams(run: Run) -> None:
    """Half of the work is on a second stream, and the host waits for both halves."""
    left, right = (torch.randn(3072, 3072, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()

    def multiplied(x: torch.Tensor) -> torch.Tensor:
        result = x
        for _ in range(10):
            result = torch.tanh(result @ x)
        return result

    def step() -> float:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            second = multiplied(right)
        first = multiplied(left)
        torch.cuda.current_stream().wait_stream(side)
        return (first + second).sum().item()

    seconds_of(step)
    for _ in run.steps():
        step()


def copies(run: Run) -> None:
    """Inputs from pageable and from pinned memory, and the result back."""
    shape = (2048, 4096)
    pageable, pinned = torch.empty(shape), torch.empty(shape, pin_memory=True)
    weights = torch.randn(4096, 4096, device="cuda") / 64

    def step(number: int) -> None:
        with run.part("fill"):
            pageable.fill_(number % 7)  # part: fill
            pinned.copy_(pageable)  # part: fill
        with run.part("pageable"):
            slow = pageable.cuda()  # part: pageable
        result = slow + pinned.cuda(non_blocking=True)
        for _ in range(10):
            result = torch.tanh(result @ weights)
        result.cpu()

    for number in range(3):
        step(number)
    for number in run.steps():
        step(number)


def launch_bound(run: Run) -> None:
    """Kernels that take the GPU less time than the host needs to launch them."""
    x = torch.zeros(1 << 10, device="cuda")

    def step() -> float:
        for _ in range(200):
            x.add_(1)
        return x[0].item()

    seconds_of(step)
    for _ in run.steps():
        step()


PROGRAMS = {
    program.__name__: program
    for program in (training, training_free, decode, dataloader, host_gap, graph_replay, server, two_streams, copies,
                    launch_bound)
}
# Those that wait for the GPU in each step, so that a ledger can be close.
WAIT_EACH_STEP = set(PROGRAMS) - {"training_free", "server"}
# Those whose marks all come after a wait for everything: the GPU can have nothing to do in them.
IDLE_IN_MARKS = {"dataloader", "host_gap", "graph_replay"}


def main() -> None:
    name, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    run = Run(name, seconds, seed)
    PROGRAMS[name](run)
    torch.cuda.synchronize()
    run.say()


if __name__ == "__main__":
    main()
