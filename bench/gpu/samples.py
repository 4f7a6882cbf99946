"""Are samples of a GPU what nvidia-smi says of it in the same second?

    python3 bench/gpu/samples.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--seconds 6]

Traces the host for a while, asks nvidia-smi meanwhile, and compares each of its answers with the sample next to it in time.
Prints the table last and writes gpu-samples.json. Needs root.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import machine
import measured_code

# What nvidia-smi calls it, how much of its unit ours is, and by how much both may differ: they are not asked at once.
COMPARED = {
    "gpu.temperature": ("temperature.gpu", 1, 2),
    "gpu.power": ("power.draw.instant", 1, 40),
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


def main() -> int:
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.db"
        command = [str(options.gpuwhy), "trace", "--live", "never", "--duration", f"{options.seconds}s", "--out", str(trace)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        said = []
        while tracer.poll() is None:
            said.append((time.time_ns(), ask()))
            time.sleep(0.3)
        with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT name, at_ns, value FROM sample_values WHERE device = '0'").fetchall()
    report = {"machine": machine.describe(), **measured_code.describe(), "names": compared(rows, said)}
    (options.out / "gpu-samples.json").write_text(json.dumps(report, indent=1) + "\n")
    for name, result in report["names"].items():
        print(f"{name:<26} {json.dumps(result)}")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=int, default=6)
    options = parser.parse_args()
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def ask() -> list[str]:
    query = ",".join(name for name, _, _ in COMPARED.values())
    command = ["nvidia-smi", "--id=0", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True)
    return [cell.strip() for cell in done.stdout.strip().split(",")] if done.returncode == 0 else []


def compared(rows: list[tuple], said: list[tuple[int, list[str]]]) -> dict:
    results = {}
    for at, (name, (theirs, factor, allowed)) in enumerate(COMPARED.items()):
        own = [(at_ns, value) for one, at_ns, value in rows if one == name]
        pairs = []
        for asked_ns, cells in said:
            value = number(cells[at]) if at < len(cells) else None
            near = [(abs(at_ns - asked_ns), value_ns) for at_ns, value_ns in own if abs(at_ns - asked_ns) < 1_000_000_000]
            if value is not None and near:
                pairs.append((min(near)[1], value * factor))
        agree = sum(abs(ours - other) <= allowed for ours, other in pairs)
        results[name] = {"samples": len(own), "compared": len(pairs), "agree": agree, "last": pairs[-1] if pairs else None,
                         "theirs": theirs}
    return results


def number(text: str) -> float | None:
    try:
        return float(int(text, 16)) if text.startswith("0x") else float(text)
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
