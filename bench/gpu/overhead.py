"""What does tracing cost on a real GPU? Traces real PyTorch programs with gpuwhy, bpftrace and the PyTorch profiler in
turn and says how much slower they become.

    python3 bench/gpu/overhead.py [--gpuwhy .gpu/gpuwhy] [--bpftrace .gpu/bpftrace.tar.xz] [--out $OUT] [--minutes 8]
                                  [--workloads training,decode,...] [--ways default,everything,...]

One process holds all workloads. A pair is a traced slice of one workload between two untraced ones; a slice runs whole
units (a step, 16 tokens, 2,000 launches...) for a second or two and yields their mean time. Pairs of all workloads and
ways take turns until the time is over, so a slow minute hits all of them. Tracers start and settle while the workload
runs, and end after their slice: in an untraced one there is no hook of anybody. The way `untraced` is the noise: an untraced slice between its two neighbours, as far apart as those
of a pair. The profiler comes last, since it leaves CUPTI behind in the process, and is compared with the untraced
slices before.

Prints the table last and writes gpu-overhead.json. Needs root. bench/gpu/pack_bpftrace.sh makes the bpftrace archive.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import measured_code
from measured import WARM_UP_S, Measured
from tracers import BPFTRACE_FUNCTIONS, Bpftrace, Gpuwhy, NotRun, Running

UNITS = {
    "training": "a step",
    "decode": "16 tokens",
    "storm": "2,000 launches",
    "graph_decode": "64 tokens",
    "loader": "an epoch of 64 batches",
}
UNTRACED_S = 1.0


@dataclass(frozen=True)
class Way:
    settle_s: float = 0.5
    slice_s: float = 1.0


WAYS = {
    "untraced": Way(),
    # Its budget is kept with windows every half second or so: it takes a while to find them and a slice holds several.
    "default": Way(settle_s=3.0, slice_s=2.0),
    "everything": Way(),
    "bpftrace": Way(),
    "profiler": Way(),
}
TURN = ("default", "everything", "bpftrace")
PROFILER_SHARE = 0.12
# What a pair may take as long as none has been measured.
FIRST_PAIR_S = 10.0


def main() -> None:
    options = parse_arguments()
    deadline = time.monotonic() + 60 * options.minutes
    for_profiler_s = 60 * options.minutes * PROFILER_SHARE if "profiler" in options.ways else 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        try:
            bench.start()
            bench.take_turns(TURN, deadline - for_profiler_s)
            bench.profile(deadline)
        finally:
            bench.measured.stop()
            report(bench)


def parse_arguments() -> argparse.Namespace:
    def names(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--bpftrace", type=Path, default=Path(".gpu/bpftrace.tar.xz"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--workloads", type=names, default=list(UNITS))
    parser.add_argument("--ways", type=names, default=list(WAYS))
    parser.add_argument("--add-to", type=Path, help="results of an earlier run, whose other cells are kept")
    return parser.parse_args()


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options, self.folder = options, folder
        self.cells = {(workload, way): Cell() for workload in options.workloads for way in options.ways}
        self.machine: dict = {}
        self.code = measured_code.describe()
        self.tracers: dict[str, Gpuwhy | Bpftrace] = {}
        self.longest_pair_s: dict[str, float] = {}
        # Milliseconds of the untraced slices from before the profiler first ran.
        self.clean: dict[str, list[float]] = {workload: [] for workload in options.workloads}
        self.has_profiled = False
        self.measured = Measured(options.workloads)

    def start(self) -> None:
        """Unpacks the tracers while the workloads are built."""
        begun = time.monotonic()
        options = self.options
        self.prepare("default", lambda: Gpuwhy(options.gpuwhy, self.folder, keeps_budget=True))
        self.prepare("everything", lambda: Gpuwhy(options.gpuwhy, self.folder, keeps_budget=False))
        self.prepare("bpftrace", lambda: Bpftrace(options.bpftrace, self.folder))
        started = self.measured.started()
        self.machine = started["machine"]
        for (workload, _), cell in self.cells.items():
            cell.not_run = started["failed"].get(workload, cell.not_run)
        print(f"ready after {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    def prepare(self, way: str, make: Callable[[], Gpuwhy | Bpftrace]) -> None:
        if way not in self.options.ways:
            return
        try:
            self.tracers[way] = make()
        except (NotRun, OSError, tarfile.TarError) as error:
            for workload in self.options.workloads:
                self.cells[workload, way].not_run = str(error)

    def profile(self, deadline: float) -> None:
        for workload, slices in self.clean.items():
            cell = self.cells.get((workload, "profiler"))
            if cell and not cell.not_run and not slices:
                self.untraced(workload)
        self.has_profiled = True
        self.take_turns(("profiler",), deadline)

    def take_turns(self, ways: tuple[str, ...], deadline: float) -> None:
        while any([self.take_turn(workload, ways, deadline) for workload in self.options.workloads]):
            pass

    def take_turn(self, workload: str, ways: tuple[str, ...], deadline: float) -> bool:
        """A pair for each of the ways that runs here and that there is still time for."""
        untraced: list[float] = []
        took_any = False
        for way in ways:
            cell = self.cells.get((workload, way))
            begun = time.monotonic()
            if cell is None or cell.not_run or begun + self.longest_pair_s.get(way, FIRST_PAIR_S) > deadline:
                continue
            untraced = untraced or [self.untraced(workload)]
            try:
                slice_ = self.traced(workload, way)
            except NotRun as error:
                cell.not_run = str(error)
                continue
            untraced.append(self.untraced(workload))
            if way == "profiler":
                clean = statistics.median(self.clean[workload])
                cell.add(slice_["unit_ms"], clean, left_behind=untraced[-1] / clean - 1)
            else:
                cell.add(slice_["unit_ms"], statistics.mean(untraced[-2:]), **slice_["facts"])
            took_any = True
            self.longest_pair_s[way] = max(self.longest_pair_s.get(way, 0), time.monotonic() - begun)
        self.add_noise(workload, untraced)
        return took_any

    def untraced(self, workload: str) -> float:
        self.measured.run(workload, WARM_UP_S)
        unit_ms = self.measured.run(workload, UNTRACED_S)["unit_ms"]
        if not self.has_profiled:
            self.clean[workload].append(unit_ms)
        return unit_ms

    def traced(self, workload: str, way: str) -> dict:
        """A traced slice, with what the tracer says about it."""
        if way == "profiler":
            return self.measured.run(workload, WAYS[way].slice_s, profiled=True)
        tracer = self.tracers[way]
        running = tracer.start(self.measured)
        try:
            self.settle(running, workload, WAYS[way].settle_s)
            slice_ = self.measured.run(workload, WAYS[way].slice_s)
            running.check()
        finally:
            running.stop()
        return {**slice_, "facts": tracer.facts(running, self.measured, slice_)}

    def add_noise(self, workload: str, untraced: list[float]) -> None:
        if noise := not self.has_profiled and self.cells.get((workload, "untraced")):
            for before, between, after in zip(untraced, untraced[1:], untraced[2:]):
                noise.add(between, statistics.mean([before, after]))

    def settle(self, running: Running, workload: str, settle_s: float) -> None:
        give_up = time.monotonic() + 30
        while not running.is_ready.is_set():
            self.measured.run(workload, 0.1)
            running.check()
            if time.monotonic() > give_up:
                raise NotRun(f"not attached after 30 s: {running.said()}")
        self.measured.run(workload, settle_s)


@dataclass
class Cell:
    """A workload traced in one way."""

    pairs: list[dict] = field(default_factory=list)
    not_run: str | None = None

    def add(self, traced_ms: float, untraced_ms: float, **facts) -> None:
        slowdown = traced_ms / untraced_ms - 1
        self.pairs.append({"untraced_ms": untraced_ms, "traced_ms": traced_ms, "slowdown": slowdown, **facts})

    def median(self, name: str) -> float | None:
        found = [pair[name] for pair in self.pairs if pair.get(name) is not None]
        return statistics.median(found) if found else None

    def summary(self) -> dict:
        if not self.pairs:
            return {"pairs": 0, "not_run": self.not_run or "no time left"}
        low, high, coverage = interval([pair["slowdown"] for pair in self.pairs])
        medians = ("estimate", "agent_cpu", "hooks", "probe_cost_ns", "left_behind")
        return {
            "unit_ms": self.median("untraced_ms"), "median_slowdown": self.median("slowdown"),
            "ci_low": low, "ci_high": high, "ci_coverage": coverage, "pairs": len(self.pairs),
            **{name: self.median(name) for name in medians}, "not_run": self.not_run, "slices": self.pairs,
        }


def interval(values: list[float]) -> tuple[float, float, float]:
    """An interval for the median from order statistics: the narrowest that covers it with 95 % probability, or all of
    the values and how probably they cover it. It takes six of them for 95 %."""
    ordered, count = sorted(values), len(values)

    def coverage(dropped: int) -> float:
        return 1 - 2 * sum(math.comb(count, k) for k in range(dropped + 1)) / 2**count

    dropped = max((k for k in range(count // 2) if coverage(k) >= 0.95), default=0)
    return ordered[dropped], ordered[count - 1 - dropped], coverage(dropped)


def report(bench: Bench) -> None:
    cells = [{"workload": workload, "way": way, "unit": UNITS.get(workload, "a step"), **cell.summary()}
             for (workload, way), cell in bench.cells.items()]
    if bench.options.add_to:
        measured = {(cell["workload"], cell["way"]) for cell in cells if cell["pairs"]}
        earlier = json.loads(bench.options.add_to.read_text())["cells"]
        cells = [cell for cell in cells if cell["pairs"]]
        cells += [cell for cell in earlier if (cell["workload"], cell["way"]) not in measured]
        cells.sort(key=lambda cell: (list(UNITS).index(cell["workload"]), list(WAYS).index(cell["way"])))
    bpftrace = bench.tracers.get("bpftrace")
    results = {
        "machine": bench.machine, **bench.code, "minutes": bench.options.minutes, "baseline": "no tracer",
        "bpftrace": bpftrace and bpftrace.version, "bpftrace_functions": BPFTRACE_FUNCTIONS,
        "longest_pair_s": bench.longest_pair_s, "cells": cells,
    }
    bench.options.out.mkdir(parents=True, exist_ok=True)
    (bench.options.out / "gpu-overhead.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"{'workload':13} {'way':11} {'unit ms':>9} {'slower':>8} {'interval':>20} covers pairs estimate")
    for cell in cells:
        print(f"{cell['workload']:13} {cell['way']:11} {as_text(cell)}")


def as_text(cell: dict) -> str:
    if not cell["pairs"]:
        return f"not run: {cell['not_run']}"
    between = f"[{cell['ci_low']:+.1%}, {cell['ci_high']:+.1%}]"
    estimate = "" if cell["estimate"] is None else f"{cell['estimate']:.2%}"
    return (f"{cell['unit_ms']:9.2f} {cell['median_slowdown']:+8.1%} {between:>20} {cell['ci_coverage']:6.0%} "
            f"{cell['pairs']:5} {estimate:>8}")


if __name__ == "__main__":
    main()
