"""Is the GPU's ledger right? Traces the programs of ledger_programs.py on a real GPU with default settings while CUPTI
records each kernel and copy of the same run (kernel_records.c), and compares how long the GPU was idle.

    python3 bench/gpu/ledger.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--seconds 6] [--seeds 2] [--minutes 8]
                                [--only NAME,...] [--keep]

The truth is the time in which no kernel, copy or memset ran, over the very time that the ledger is about. Compared are
the estimate, its bounds, what is said to be observed, the steps, and the line that ran in most of the idle time.
Recording slows launches a little, for the truth and for gpuwhy alike. Prints the table last and writes ledger.json
after each run, with --keep the traces too; copy that to docs/results/gpu-ledger-COMMIT.json. Needs root and gcc.

    python3 bench/gpu/ledger.py --report docs/results/gpu-ledger-*.json > docs/ledger.md
"""

import argparse
import ctypes
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import machine
import measured_code
from incidents import brief, last_json
from kept_traces import KeptTraces

HERE = Path(__file__).resolve().parent
PROGRAMS_FILE = HERE / "ledger_programs.py"
# Imports, models and the tracer's start and end.
AROUND_S = 75
ANSWER_S = 60
TRACE = "x.db"
# As kernel_records.c writes them: start_ns, end_ns, kind, device. The last one holds what was dropped and had no time.
RECORD = struct.Struct("<QQII")
SUMS = 0
# What is observed may be above the truth by so much, and an estimate is close within so much.
OBSERVED_SLACK = 0.02
CLOSE = 0.10
# Shorter gaps between two kernels are nobody's fault.
SHORT_GAP_NS = 20_000

Spans = list[tuple[int, int]]


def main() -> int:
    if sys.argv[1:2] == ["--report"]:
        return report_on([Path(name) for name in sys.argv[2:]])
    options = parse_arguments()
    deadline = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    kept = KeptTraces(options.out if options.keep else None)
    report = {"machine": machine.describe(), **measured_code.describe(), "seconds": options.seconds, "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        library, report["cupti"] = build(Path(folder))
        for seed, name in ((seed, name) for seed in range(1, options.seeds + 1) for name in options.only):
            if time.monotonic() > deadline:
                print(f"out of time before {name}, seed {seed}", flush=True)
                break
            run = one_run(options, library, name, seed, kept)
            report["runs"].append(run)
            (options.out / "ledger.json").write_text(json.dumps(report, indent=1) + "\n")
            print(line(run), flush=True)
    print_table(report["runs"])
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--keep", action="store_true", help="bring the traces home")
    options = parser.parse_args()
    from ledger_programs import PROGRAMS  # needs PyTorch, unlike --help and --report

    options.only = options.only or list(PROGRAMS)
    if unknown := set(options.only) - set(PROGRAMS):
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    if not options.gpuwhy.exists():
        parser.error(f"no {options.gpuwhy}; name the binary with --gpuwhy")
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def build(folder: Path) -> tuple[Path, int]:
    """The library that records, and the version of CUPTI that it uses."""
    headers, cupti = cupti_files()
    library = folder / "kernel_records.so"
    flags = ["-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", f"-Wl,-rpath,{cupti.parent}"]
    includes = [word for place in headers for word in ("-isystem", str(place))]
    command = ["gcc", *flags, *includes, str(HERE / "kernel_records.c"), str(cupti), "-o", str(library)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"kernel_records.c cannot be built:\n{built.stderr[-3000:]}")
    version = ctypes.c_uint32()
    ctypes.CDLL(str(cupti)).cuptiGetVersion(ctypes.byref(version))
    return library, version.value


def cupti_files() -> tuple[list[Path], Path]:
    """Folders with headers, and the library. PyTorch's own come first: a process has room for one CUPTI."""
    packages = [Path(place) / "nvidia" for place in sys.path if place]
    roots = [package / name for package in packages for name in ("cu13", "cuda_cupti", "cuda_runtime")]
    roots += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    headers = [root / name for root in roots for name in ("include", "extras/CUPTI/include")]
    folders = [root / name for root in roots for name in ("lib", "lib64", "extras/CUPTI/lib64")]
    libraries = [found for folder in folders for found in sorted(folder.glob("libcupti.so.[0-9]*"))]
    headers = [place for place in headers if place.is_dir()]
    if not libraries or not any((place / "cupti.h").exists() for place in headers):
        sys.exit("no CUPTI here; hint: CUDA_HOME names the toolkit")
    return headers, libraries[0]


def one_run(options: argparse.Namespace, library: Path, name: str, seed: int, kept: KeptTraces) -> dict:
    run = {"program": name, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        try:
            compared = compare(*traced(options, library, name, seed, Path(folder)))
            kept.keep(Path(folder) / TRACE, f"ledger-{name}-{seed}")
            return {**run, **compared}
        except Exception as error:  # One run that fails leaves the others.
            return {**run, "error": f"{type(error).__name__}: {error}"[-1500:]}


def traced(
    options: argparse.Namespace, library: Path, name: str, seed: int, folder: Path
) -> tuple[dict, dict, "Truth"]:
    """What the program said, how gpuwhy explains it, and what CUPTI recorded."""
    trace, records = folder / TRACE, folder / "records"
    program = [sys.executable, str(PROGRAMS_FILE), name, str(options.seconds), str(seed)]
    injected = {**os.environ, "CUDA_INJECTION64_PATH": str(library), "KERNEL_RECORDS": str(records)}
    command = [str(options.gpuwhy), "trace", "--live", "never", "--out", str(trace), "--", *program]
    stdout, stderr = finish(command, options.seconds + AROUND_S, folder, injected)
    told = last_json(stdout)
    if told is None:
        raise RuntimeError(f"the program said nothing: {stderr[-1200:]}")
    explained, _ = finish([str(options.gpuwhy), "explain", str(trace), "--json"], ANSWER_S, folder, dict(os.environ))
    truth = Truth(sorted(folder.glob("records.*")), unix_offset(trace), stderr)
    return told, json.loads(explained), truth


def finish(command: list[str], limit_s: float, folder: Path, variables: dict[str, str]) -> tuple[str, str]:
    """Its stdout and stderr. It has a session of its own, so that the program it traces ends with it."""
    process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        _, stderr = process.communicate()
        raise RuntimeError(f"it did not end in {limit_s:.0f} s: {stderr[-1000:]}") from None
    if process.returncode:
        raise RuntimeError(f"gpuwhy {command[1]} ended with {process.returncode}: {stderr[-1200:]}")
    return stdout, stderr


def unix_offset(trace: Path) -> int:
    """What the tracer added to the kernel's monotonic clock for the times that it tells."""
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as database:
        offsets = [row[0] for row in database.execute("SELECT DISTINCT unix_offset_ns FROM clock_anchors")]
    if len(offsets) != 1:
        raise RuntimeError(f"the wall clock was set meanwhile: {len(offsets)} offsets")
    return offsets[0]


class Truth:
    """When the GPU worked, in Unix time as gpuwhy tells it."""

    def __init__(self, files: list[Path], offset_ns: int, said: str):
        self.offset_ns, self.dropped, self.untimed = offset_ns, 0, 0
        self.worked: dict[int, Spans] = {}
        if not files:
            raise RuntimeError(f"CUPTI recorded nothing: {said[-1000:]}")
        for file in files:
            self.read(file)
        self.last_ns = max((end_ns for spans in self.worked.values() for _, end_ns in spans), default=0)

    def read(self, file: Path) -> None:
        kind = SUMS + 1
        for start_ns, end_ns, kind, device in RECORD.iter_unpack(whole_records(file.read_bytes())):
            if kind == SUMS:
                self.dropped, self.untimed = self.dropped + start_ns, self.untimed + end_ns
            else:
                self.worked.setdefault(device, []).append((start_ns + self.offset_ns, end_ns + self.offset_ns))
        if kind != SUMS:
            raise RuntimeError("the records have no end: the process ended before they were written")

    def gaps(self, device: int, from_ns: int, to_ns: int) -> Spans:
        """When nothing ran, in the order of time."""
        gaps, free_ns = [], from_ns
        for start_ns, end_ns in sorted(self.worked.get(device, [])):
            if start_ns >= to_ns:
                break
            if start_ns > free_ns:
                gaps.append((free_ns, start_ns))
            free_ns = max(free_ns, end_ns)
        return gaps + [(free_ns, to_ns)] if free_ns < to_ns else gaps


def whole_records(data: bytes) -> bytes:
    return data[: len(data) - len(data) % RECORD.size]


def compare(told: dict, explanation: dict, truth: Truth) -> dict:
    if not explanation.get("gpus"):
        raise RuntimeError(f"no ledger; causes: {[finding['cause'] for finding in explanation['findings']]}")
    if truth.last_ns < told["began_ns"][-1] + truth.offset_ns:
        raise RuntimeError("the records end before the program does")
    gpu = explanation["gpus"][0]
    phase = phase_of(explanation, gpu)
    all_ns = gpu["busy_ns"] + gpu["idle_ns"] + gpu["unknown_ns"]
    # A ledger ends with the last call of a program that has ended, which may be before its phase does.
    from_ns, to_ns = phase["from_ns"], min(phase["to_ns"], phase["from_ns"] + all_ns)
    gaps = truth.gaps(gpu["device"], from_ns, to_ns)
    true_idle = length(gaps) / (to_ns - from_ns)
    long_gaps = [(start, end) for start, end in gaps if end - start > SHORT_GAP_NS]
    low, high = gpu["interval"]
    return {
        "from_ns": from_ns,
        "to_ns": to_ns,
        "true_idle": rounded(true_idle),
        "true_idle_in_long_gaps": rounded(length(long_gaps) / (to_ns - from_ns)),
        "idle": gpu["idle_share"],
        "interval": gpu["interval"],
        "outside_by": rounded(max(0.0, low - true_idle, true_idle - high)),
        "is_in_interval": low <= true_idle <= high,
        "observed_idle": rounded(low),
        "is_observed_right": low <= true_idle + OBSERVED_SLACK,
        "off_by": rounded(gpu["idle_share"] - true_idle),
        "waits_each_step": told["waits_each_step"],
        **steps(told, explanation, phase, truth, from_ns, to_ns),
        **lines(told, explanation, gpu, truth, gaps),
        "busy_in_marks": busy_in_marks(told, truth, gaps, from_ns, to_ns),
        "records": len(truth.worked.get(gpu["device"], [])),
        "dropped": truth.dropped,
        "untimed": truth.untimed,
        "gpu": gpu,
        "phases": explanation["phases"],
        "said": [brief(finding) for finding in explanation["findings"][:4]],
    }


def phase_of(explanation: dict, gpu: dict) -> dict:
    """The phase that a ledger is about; the whole window where the run has none."""
    named = (phase for phase in explanation["phases"] if phase["name"] == gpu["phase"])
    return next(named, explanation["window"])


def steps(told: dict, explanation: dict, phase: dict, truth: Truth, from_ns: int, to_ns: int) -> dict:
    """Those that began in the time; not known where the program did not keep all of them."""
    began = [at_ns + truth.offset_ns for at_ns in told["began_ns"]]
    is_whole = len(began) == told["steps"]
    counts = [thread["steps"]["count"] for thread in explanation["threads"] if thread["steps"]]
    return {
        "steps": told["steps"],
        "true_steps": sum(from_ns <= at_ns < to_ns for at_ns in began) if is_whole else None,
        "steps_found": phase.get("steps") or max(counts, default=None),
    }


def lines(told: dict, explanation: dict, gpu: dict, truth: Truth, gaps: Spans) -> dict:
    """The line that ran in most of the idle time, and the one that is blamed for it."""
    blamed = named_line(explanation, gpu)
    parts: dict[int, Spans] = {}
    for from_ns, to_ns, number in told["marks"]:
        parts.setdefault(number, []).append((from_ns + truth.offset_ns, to_ns + truth.offset_ns))
    if not parts:
        return {"line": blamed, "true_line": None, "is_line_right": None}
    idle_ns = {number: overlap(spans, gaps) for number, spans in parts.items()}
    true_line = max(idle_ns, key=idle_ns.get)
    same_part = told["lines"][str(true_line)]
    return {
        "line": blamed,
        "true_line": true_line,
        "true_lines": same_part,
        "true_line_share_of_idle": rounded(idle_ns[true_line] / max(1, length(gaps))),
        "is_line_right": blamed in same_part,
    }


def named_line(explanation: dict, gpu: dict) -> int | None:
    """The program's line in what took most of the idle time; where that has none, in the first problem that has."""
    findings = {finding["id"]: finding for finding in explanation["findings"]}
    largest = max(gpu["idle_because"], key=lambda because: because["ns"], default={})
    first = findings.get(largest.get("finding"), {"where": largest.get("where", [])})
    problems = [finding for finding in explanation["findings"] if finding["is_problem"]]
    places = [place for finding in [first, *problems] for place in finding["where"]]
    own = (place["line"] for place in places if Path(place["file"]).name == PROGRAMS_FILE.name)
    return next(own, None)


def busy_in_marks(told: dict, truth: Truth, gaps: Spans, from_ns: int, to_ns: int) -> float | None:
    """How much of the time in which the GPU can have had no work it had some by the records: how far clocks differ."""
    marks = [(start + truth.offset_ns, end + truth.offset_ns) for start, end, _ in told["marks"]]
    inside = sorted((max(start, from_ns), min(end, to_ns)) for start, end in marks if start < to_ns and end > from_ns)
    if not told["is_idle_in_marks"] or not inside:
        return None
    return rounded(1 - overlap(inside, gaps) / length(inside))


def overlap(ones: Spans, others: Spans) -> int:
    """How long both last. Each is in the order of time."""
    sum_ns = one = other = 0
    while one < len(ones) and other < len(others):
        from_ns, to_ns = max(ones[one][0], others[other][0]), min(ones[one][1], others[other][1])
        sum_ns += max(0, to_ns - from_ns)
        is_one_over = ones[one][1] < others[other][1]
        one, other = one + is_one_over, other + (not is_one_over)
    return sum_ns


def length(spans: Spans) -> int:
    return sum(end - start for start, end in spans)


def rounded(share: float) -> float:
    return round(share, 4)


# Of the table: each column with its width.
COLUMNS = {"program": 14, "seed": 4, "true": 5, "said": 5, "between": 14, "in it": 12, "observed": 8, "not above": 9,
           "off by": 6, "steps": 14, "line": 16, "dropped": 7}


def cells(run: dict) -> list[str]:
    """A row of the table; shares in percent."""
    if "error" in run:
        return [run["program"], str(run["seed"]), f"broken: {run['error'].strip().splitlines()[-1][:150]}"]
    low, high = run["interval"]
    is_inside = "yes" if run["is_in_interval"] else f"NO, {100 * run['outside_by']:.1f} off"
    return [
        run["program"],
        str(run["seed"]),
        f"{100 * run['true_idle']:.1f}",
        f"{100 * run['idle']:.1f}",
        f"{100 * low:.1f} to {100 * high:.1f}",
        is_inside,
        f"{100 * run['observed_idle']:.1f}",
        "yes" if run["is_observed_right"] else "NO",
        f"{100 * run['off_by']:+.1f}",
        f"{run['steps_found'] or '-'} of {run['true_steps'] or '-'}",
        line_cell(run),
        str(run["dropped"]),
    ]


def line_cell(run: dict) -> str:
    if run["is_line_right"] is None:
        return "-"
    return f"{run['line']}" if run["is_line_right"] else f"NO, {run['line']} for {run['true_line']}"


def line(run: dict) -> str:
    return aligned(cells(run))


def aligned(row: list[str]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(row, COLUMNS.values())).rstrip()


def print_table(runs: list[dict]) -> None:
    print("\n" + aligned(list(COLUMNS)))
    for run in runs:
        print(line(run))
    print(f"\n{summary(runs)}")


def summary(runs: list[dict]) -> str:
    """The counts of all runs that ended, in a sentence or two."""
    whole = [run for run in runs if "error" not in run]
    waiting = [run for run in whole if run["waits_each_step"]]
    with_lines = [run for run in whole if run["is_line_right"] is not None]
    count = lambda runs, test: f"{sum(1 for run in runs if test(run))} of {len(runs)}"
    text = (
        f"The true idle share lies between the bounds in {count(whole, lambda run: run['is_in_interval'])} runs. "
        f"The estimate is within {100 * CLOSE:.0f} points of it in "
        f"{count(waiting, lambda run: abs(run['off_by']) <= CLOSE)} of those that wait for the GPU in each step. "
        f"What is observed is not above it in {count(whole, lambda run: run['is_observed_right'])}. "
        f"The line is right in {count(with_lines, lambda run: run['is_line_right'])}."
    )
    checked = [run["busy_in_marks"] for run in whole if run["busy_in_marks"] is not None]
    if checked:
        text += f" By the records, the GPU worked in up to {100 * max(checked):.1f} % of times in which it cannot have."
    dropped = sum(run["dropped"] for run in whole)
    return text + f" {dropped} records were dropped; {len(runs) - len(whole)} runs are broken."


def report_on(files: list[Path]) -> int:
    """Kept results as a page, the newest last."""
    results = sorted((json.loads(file.read_text()) for file in files), key=lambda kept: kept["runs"][0]["from_ns"])
    print("# The GPU's ledger\n")
    print("How long the GPU had nothing to do is its own word where the driver tells (NVML), and inferred from what the host")
    print("asks of it otherwise. Here that is compared with")
    print("CUPTI's records of each kernel, copy and memset of the same run (`bench/gpu/kernel_records.c`): idle is when")
    print("none of them ran. Programs run with default settings. `bench/gpu/ledger.py` runs them and writes this page.\n")
    print("Shares of the steady state in percent. `observed` is the least that gpuwhy says it was idle; up to")
    print(f"{100 * OBSERVED_SLACK:.0f} points more than the truth count as not above it. `line` is the line of")
    print("`ledger_programs.py` that is blamed for most of the idle time.")
    for kept in results:
        on = kept["machine"]
        print(f"\n## {kept['commit']}\n")
        print(f"Build {kept['commit']}, version {kept['version']}; {on['gpu']}, driver {on['driver']}, PyTorch {on['torch']}; ", end="")
        print(f"{kept['seconds']:g} s each. {summary(kept['runs'])}{' ' + kept['note'] if 'note' in kept else ''}\n")
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        for run in kept["runs"]:
            row = cells(run)
            print(f"| {' | '.join(row + [''] * (len(COLUMNS) - len(row)))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
