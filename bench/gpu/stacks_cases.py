"""The training scripts that stacks.py traces, each with one fault. The line to change ends in `# blame`; where another
thread is waited for, so do the lines where that one works and lets go, and the line that waits ends in `# victim`.
"""

from dataclasses import dataclass

# Every step is some hundred launches and a few milliseconds of GPU work; the GPU is waited for every tenth step.
TRAINING = """\
import json
import sys
import threading
import time

import torch

torch.set_num_threads(1)
layers = [layer for _ in range(12) for layer in (torch.nn.Linear(2048, 2048), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
batch = torch.randn(1024, 2048, device="cuda")
steps = 0


def step(batch):
    global steps
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 10 == 0:
        torch.cuda.synchronize()


for _ in range(5):
    step(batch)
torch.cuda.synchronize()
end = time.time() + float(sys.argv[1])
"""

SAY = """
torch.cuda.synchronize()
print(json.dumps({"steps": steps}), flush=True)
"""


@dataclass(frozen=True)
class Case:
    # Any of them must come first; nothing above low severity where there are none.
    causes: tuple[str, ...]
    body: str

    def script(self) -> str:
        return TRAINING + self.body + SAY

    def marked(self, word: str) -> list[int]:
        return [number for number, line in enumerate(self.script().splitlines(), 1) if line.endswith(f"  # {word}")]


CASES = {
    # No block that training leaves in PyTorch's cache is as large as these.
    "slow-allocation": Case(("alloc-churn",), """
sizes, turn = (96 << 20, 160 << 20, 224 << 20, 288 << 20), 0
while time.time() < end:
    turn += 1
    scratch = [torch.empty(size + (turn % 7 << 25), dtype=torch.uint8, device="cuda") for size in sizes]  # blame
    step(batch)
    del scratch
    torch.cuda.empty_cache()  # blame
"""),
    "slow-sync": Case(("sync-storm",), """
while time.time() < end:
    step(batch)
    for parameter in model.parameters():
        parameter.grad.abs().max().item()  # blame
"""),
    "slow-loader": Case(("input-starved",), """
import torch.utils.data


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        value = sum(number * number % 7 for number in range(60_000))  # blame
        return torch.full((2048,), value % 97 / 97)


for rows in torch.utils.data.DataLoader(Samples(), batch_size=16, num_workers=2):  # victim
    step(rows.cuda())
    if time.time() >= end:
        break
"""),
    # Python's locks are semaphores, which from outside look like the queues that are built of them.
    "held-lock": Case(("lock-wait", "gil-wait", "input-starved"), """
lock, settings = threading.Lock(), {"clip": 1.0}


def refresh():
    while time.time() < end:
        with lock:  # blame
            settings["clip"] = 1.0 + sum(number * number % 7 for number in range(300_000)) % 2  # blame
        time.sleep(0.003)


threading.Thread(target=refresh).start()
while time.time() < end:
    with lock:  # victim
        clip = settings["clip"]
    step(batch)
"""),
    "held-interpreter": Case(("gil-wait",), """
def count():
    while time.time() < end:
        sum(number * number % 7 for number in range(300_000))  # blame


threading.Thread(target=count).start()
while time.time() < end:
    step(batch)
"""),
    "leak": Case(("memory-leak",), """
kept = []
while time.time() < end:
    step(batch)
    if steps % 10 == 0:
        kept.append(torch.zeros(16 << 20, device="cuda"))  # blame
"""),
    "healthy": Case((), """
while time.time() < end:
    step(batch)
"""),
}
