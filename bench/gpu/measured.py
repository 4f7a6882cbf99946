"""The process that overhead.py measures, from inside (`work`) and from outside (`Measured`). It holds all workloads and
runs slices of them on request: one line of JSON for an order, one for its answer.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

# After a change, before anything is measured.
WARM_UP_S = 0.1
# A process that wanders over all CPUs of a shared machine is slower and faster by itself from second to second.
CPUS = 4


class Measured:
    """Tracers are its siblings: one that it started would trace itself."""

    def __init__(self, workloads: list[str]):
        command = [sys.executable, __file__, *workloads]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.selector = DefaultSelector()
        self.selector.register(self.process.stdout, EVENT_READ)

    def started(self) -> dict:
        """Waits for the workloads: the machine they found, and why those that do not run there do not."""
        return self._answer(patience_s=180)

    def run(self, workload: str, seconds: float, profiled: bool = False) -> dict:
        order = {"workload": workload, "seconds": seconds, "profiled": profiled}
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self._answer(patience_s=seconds + 90)

    def mapped(self, library: str) -> str | None:
        """The path of a library it has loaded."""
        paths = (line.split(maxsplit=5)[-1] for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines())
        return next((path for path in paths if Path(path).name.startswith(library)), None)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answer(self, patience_s: float) -> dict:
        if not self.selector.select(patience_s):
            raise TimeoutError(f"the workloads said nothing for {patience_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the workloads ended with {self.process.wait()}")
        return json.loads(line)


def work(names: list[str]) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-CPUS:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the libraries print is no answer.
    import machine
    from workloads import WORKLOADS

    def say(answer: dict) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    units, failed = {}, {}
    for name in names:
        try:
            units[name] = WORKLOADS[name]()
            run_slice(units[name], 1.0)
        except Exception as error:  # One workload that does not run here leaves the others.
            failed[name] = f"{type(error).__name__}: {error}"
    say({"machine": machine.describe(), "failed": failed})
    for line in sys.stdin:
        order = json.loads(line)
        run = run_profiled if order["profiled"] else run_slice
        say(run(units[order["workload"]], order["seconds"]))


def run_slice(unit, seconds: float) -> dict:
    import torch

    torch.cuda.synchronize()
    from_ns, started, units = time.time_ns(), time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        unit()
        units += 1
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - started
    return {"unit_ms": 1e3 * elapsed / units, "units": units, "from_ns": from_ns, "to_ns": time.time_ns()}


def run_profiled(unit, seconds: float) -> dict:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        run_slice(unit, WARM_UP_S)  # the profiler's own first-time work falls in here
        return run_slice(unit, seconds)


if __name__ == "__main__":
    work(sys.argv[1:])
