"""Are samples of a GPU what its driver says of it in the same second?

    python3 bench/gpu/samples.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--seconds 12]

Traces the host while a program multiplies matrices for half of the time, asks nvidia-smi and the driver's library
meanwhile, and compares each of their answers with the sample next to it in time. Prints the table last and writes
gpu-samples.json. Needs root.
"""

import argparse
import ctypes
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import machine
import measured_code

# What nvidia-smi calls it, how much of its unit ours is, and by how much both may differ: they are not asked at once.
SMI = {
    "gpu.temperature": ("temperature.gpu", 1, 2),
    "gpu.power": ("power.draw.average", 1, 40),
    "gpu.clock.sm": ("clocks.sm", 1, 200),
    "gpu.clock.sm.max": ("clocks.max.sm", 1, 0),
    "gpu.pcie.generation": ("pcie.link.gen.gpucurrent", 1, 0),
    "gpu.pcie.generation.max": ("pcie.link.gen.max", 1, 0),
    "gpu.pcie.width": ("pcie.link.width.current", 1, 0),
    "gpu.pcie.width.max": ("pcie.link.width.max", 1, 0),
    "gpu.memory.used": ("memory.used", 1 << 20, 2 << 20),
    "gpu.ecc.uncorrected": ("ecc.errors.uncorrected.volatile.total", 1, 0),
    "gpu.throttle.reasons": ("clocks_event_reasons.active", 1, 0),
}
# What the driver's library counts it by, how much of its unit ours is, and by how much means may differ.
GPM = {
    "gpu.sm.utilization": (2, 0.01, 0.1),
    "gpu.sm.occupancy": (3, 0.01, 0.1),
    "gpu.tensor.utilization": (5, 0.01, 0.1),
    "gpu.memory.bandwidth": (10, 0.01, 0.1),
}
PROCESS_MEMORY, PROCESS_MEMORY_OFF = "gpu.process.memory", 2 << 20
NEAR_NS = 1_000_000_000

WORK = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("ready", flush=True)
while True:
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        a @ a
        torch.cuda.synchronize()
    time.sleep(0.05)
"""


def main() -> int:
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    work = subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True)
    try:
        work.stdout.readline()
        rows, said = measure(options)
    finally:
        work.kill()
        work.wait()
    report = {"machine": machine.describe(), **measured_code.describe(), "names": compared(rows, said, work.pid)}
    (options.out / "gpu-samples.json").write_text(json.dumps(report, indent=1) + "\n")
    for name, result in report["names"].items():
        print(f"{name:<26} {json.dumps(result)}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=int, default=12)
    options = parser.parse_args()
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def measure(options: argparse.Namespace) -> tuple[list[tuple], list[tuple[int, dict]]]:
    """Our samples, and what is said by others, by when they were asked."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.db"
        command = [str(options.gpuwhy), "trace", "--live", "never", "--duration", f"{options.seconds}s", "--out", str(trace)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        library, said = Library(), []
        while tracer.poll() is None:
            time.sleep(0.5)
            said.append((time.time_ns(), {**ask_smi(), **ask_processes(), **library.in_use()}))
        with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT name, device, at_ns, value FROM sample_values").fetchall(), said


def ask_smi() -> dict:
    cells = smi(f"--query-gpu={','.join(name for name, _, _ in SMI.values())}")
    values = zip(SMI.items(), map(number, cells[0] if cells else []))
    return {(ours, "0"): value * factor for (ours, (_, factor, _)), value in values if value is not None}


def ask_processes() -> dict:
    return {(PROCESS_MEMORY, f"0/{pid}"): float(used) * (1 << 20) for pid, used in smi("--query-compute-apps=pid,used_memory")}


def smi(query: str) -> list[list[str]]:
    done = subprocess.run(["nvidia-smi", "--id=0", query, "--format=csv,noheader,nounits"], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def number(text: str) -> float | None:
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


class Metric(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("result", ctypes.c_int), ("value", ctypes.c_double), ("names", ctypes.c_void_p * 3)]


class Metrics(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("before", ctypes.c_void_p),
                ("now", ctypes.c_void_p), ("metrics", Metric * 210)]


class Library:
    """What of the GPU was in use since it was asked last."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device, self.last = ctypes.c_void_p(), None
        self.nvml.nvmlInit_v2()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def in_use(self) -> dict:
        now = ctypes.c_void_p()
        self.nvml.nvmlGpmSampleAlloc(ctypes.byref(now))
        if self.nvml.nvmlGpmSampleGet(self.device, now) != 0:
            return {}
        before, self.last = self.last, now
        if before is None:
            return {}
        asked = Metrics(version=1, count=len(GPM), before=before, now=now)
        for metric, (number, _, _) in zip(asked.metrics, GPM.values()):
            metric.id = number
        failed = self.nvml.nvmlGpmMetricsGet(ctypes.byref(asked))
        self.nvml.nvmlGpmSampleFree(before)
        told = [] if failed else zip(GPM.items(), asked.metrics)
        return {(name, "0"): metric.value * factor for (name, (_, factor, _)), metric in told if metric.result == 0}


def compared(rows: list[tuple], said: list[tuple[int, dict]], pid: int) -> dict:
    """Answer by answer; what is averaged over different times, by its mean."""
    results = {}
    for name, (theirs, _, allowed) in SMI.items():
        results[name] = {"theirs": theirs, **each_compared(rows, said, name, "0", allowed)}
    results[PROCESS_MEMORY] = {"theirs": "used_memory", **each_compared(rows, said, PROCESS_MEMORY, f"0/{pid}", PROCESS_MEMORY_OFF)}
    for name, (metric, _, allowed) in GPM.items():
        own = [value for one, device, _, value in rows if (one, device) == (name, "0")]
        other = [values[name, "0"] for _, values in said if (name, "0") in values]
        means = [round(statistics.mean(values), 3) if values else None for values in (own, other)]
        is_same = None not in means and abs(means[0] - means[1]) <= allowed
        results[name] = {"theirs": f"GPM metric {metric}", "samples": len(own), "compared": len(other), "means": means,
                         "agree": is_same}
    return results


def each_compared(rows: list[tuple], said: list[tuple[int, dict]], name: str, device: str, allowed: float) -> dict:
    own = [(at_ns, value) for one, on, at_ns, value in rows if (one, on) == (name, device)]
    pairs = []
    for asked_ns, values in said:
        near = [(abs(at_ns - asked_ns), value) for at_ns, value in own if abs(at_ns - asked_ns) < NEAR_NS]
        if (name, device) in values and near:
            pairs.append((min(near)[1], values[name, device]))
    agree = sum(abs(ours - other) <= allowed for ours, other in pairs)
    return {"samples": len(own), "compared": len(pairs), "agree": agree, "last": pairs[-1] if pairs else None}


if __name__ == "__main__":
    sys.exit(main())
