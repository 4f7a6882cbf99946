"""Is the first cause right on programs that nobody here tuned for? Traces the programs of bench/gpu/incidents/SET on a
real GPU with default settings, each with its fault and without, and compares what `gpuwhy explain` says with the
program's own TRUTH.

    python3 bench/gpu/incidents.py --sets a,b [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--seconds 7] [--minutes 9]
                                   [--seeds 1,2] [--strength strong|weak] [--modes fault,healthy] [--only NAME,...]
                                   [--ahead 2] [--keep]

A program has the GPU to itself; with --ahead the next ones import meanwhile, each under its own tracer (takes_turn.py).
Right: the first finding of medium or high severity has one of the causes that TRUTH names; of two faults, both are among
the findings. A healthy run is right when it has no finding of medium or high severity. A weak fault is right or silent.
Culprit and line, which is where the thread stands that feeds the GPU, are compared where the cause is right. Prints the
table last and writes incidents.json after each run; with --keep the traces too, which `gpuwhy explain` reads anywhere.
Needs root.

    python3 bench/gpu/incidents.py --again FOLDER [--gpuwhy target/release/gpuwhy] [--out .]

explains the traces anew that --keep brought home into FOLDER, with another build and without a GPU.

    python3 bench/gpu/incidents.py --report docs/results/gpu-incidents-*.json > docs/incidents.md
"""

import argparse
import ast
import itertools
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import machine
import measured_code
from kept_traces import KeptTraces, unpack
from turns import in_turn

GPU = Path(__file__).resolve().parent
HERE = GPU / "incidents"
# Imports, models and the tracer's start and end, and programs that have the GPU before.
AROUND_S = 75
GRAVE = ("medium", "high")


def main() -> int:
    if sys.argv[1:2] == ["--report"]:
        return report_on([Path(name) for name in sys.argv[2:]])
    options = parse_arguments()
    if options.again:
        return explain_again(options)
    options.out.mkdir(parents=True, exist_ok=True)
    kept = KeptTraces(options.out if options.keep else None)
    report = {"machine": machine.describe(), **measured_code.describe(), "seconds": options.seconds, "runs": []}
    wanted = list(itertools.product(programs(options), options.seeds, options.modes))
    for run in in_turn(partial(one_run, options, kept), wanted, options.ahead, options.minutes):
        report["runs"].append(run)
        (options.out / "incidents.json").write_text(json.dumps(report, indent=1) + "\n")
        print(line(run), flush=True)
    print(f"{len(report['runs'])} of {len(wanted)} in time")
    print_table(report["runs"])
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--sets", type=names, default=["a"])
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=7)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=[1])
    parser.add_argument("--strength", default="strong", choices=["strong", "weak"])
    parser.add_argument("--modes", type=names, default=["fault", "healthy"])
    parser.add_argument("--only", type=names, default=[])
    parser.add_argument("--ahead", type=int, default=0, help="how many programs import while another one has the GPU")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="explain kept traces with this build")
    parser.add_argument("--keep", action="store_true", help="bring the traces home")
    options = parser.parse_args()
    if not options.gpuwhy.exists():
        parser.error(f"no {options.gpuwhy}; name the binary with --gpuwhy")
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def programs(options: argparse.Namespace) -> list[Path]:
    found = [path for name in options.sets for path in sorted((HERE / name).glob("*.py"))]
    return [path for path in found if not options.only or path.stem in options.only]


def truth_of(program: Path) -> dict:
    """The literal TRUTH, and the numbers of the lines that are marked."""
    source = program.read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TRUTH":
            truth = ast.literal_eval(node.value)
    causes = truth["cause"]
    truth["cause"] = causes if isinstance(causes[0], list) else [causes]
    marks = tuple(as_list(truth["line"]) + as_list(truth.get("alt_line", [])) + ["# ALT"])
    lines = enumerate(source.splitlines(), 1)
    truth["lines"] = [number for number, text in lines if text.rstrip().endswith(marks)]
    return truth


def as_list(value) -> list:
    return value if isinstance(value, list) else [value]


def one_run(options: argparse.Namespace, kept: KeptTraces, program: Path, seed: int, mode: str, turn: str) -> dict:
    truth = truth_of(program)
    run = {"set": program.parent.name, "program": program.stem, "mode": mode, "seed": seed, "strength": options.strength}
    run["expected"] = truth["cause"]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.db"
        waits = [str(GPU / "takes_turn.py"), turn] if options.ahead else []
        command = [sys.executable, *waits, str(program), mode, str(options.seconds), str(seed), options.strength]
        traced = [str(options.gpuwhy), "trace", "--out", str(trace), "--", *command]
        try:
            done = subprocess.run(traced, cwd=folder, capture_output=True, text=True, timeout=options.seconds + AROUND_S)
        except subprocess.TimeoutExpired:
            return {**run, "verdict": "broken", "error": "it did not end in time"}
        told = last_json(done.stdout)
        if told is None:
            return {**run, "verdict": "broken", "error": (done.stderr or done.stdout)[-600:]}
        run["steps"] = told.get("steps")
        if run["steps"] == 0:
            return {**run, "verdict": "broken", "error": "it had no time for a step"}
        kept.keep(trace, f"{program.parent.name}-{program.stem}-{mode}-{seed}-{options.strength}")
        return {**run, **explained(options, trace, truth, mode, options.strength, program)}


def explained(options: argparse.Namespace, trace: Path, truth: dict, mode: str, strength: str, program: Path) -> dict:
    command = [str(options.gpuwhy), "explain", str(trace), "--json"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if asked.returncode != 0:
        return {"verdict": "broken", "error": asked.stderr[-600:]}
    return score(json.loads(asked.stdout), truth, mode, strength, program)


def explain_again(options: argparse.Namespace) -> int:
    """What this build says of traces that another one has written, in the order in which they were."""
    report = json.loads((options.again / "incidents.json").read_text())
    traced_by = report["commit"]
    report.update(measured_code.describe(), traced_by=traced_by)
    report["note"] = f"The traces are of build {traced_by}, explained anew."
    with tempfile.TemporaryDirectory() as folder:
        unpack(sorted(options.again.glob("traces-*.tar")), Path(folder))
        report["runs"] = [run_again(options, run, Path(folder)) for run in report["runs"]]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "incidents.json").write_text(json.dumps(report, indent=1) + "\n")
    print_table(report["runs"])
    return 0


def run_again(options: argparse.Namespace, run: dict, folder: Path) -> dict:
    which = {key: run[key] for key in ("set", "program", "mode", "seed", "strength")}
    trace = folder / f"{'-'.join(map(str, which.values()))}.db"
    if not trace.exists():
        return run
    program = HERE / run["set"] / f"{run['program']}.py"
    truth = truth_of(program)
    again = explained(options, trace, truth, run["mode"], run["strength"], program)
    return {**which, "expected": truth["cause"], "steps": run["steps"], **again}


def last_json(output: str) -> dict | None:
    for text in reversed(output.splitlines()):
        if text.startswith("{"):
            try:
                return json.loads(text)
            except ValueError:
                continue
    return None


def score(explanation: dict, truth: dict, mode: str, strength: str, program: Path) -> dict:
    grave = [finding for finding in explanation["findings"] if finding["severity"] in GRAVE]
    said = [brief(finding) for finding in explanation["findings"][:4]]
    gpus = [
        {key: gpu[key] for key in ("device", "phase", "idle_share", "interval", "known_by", "idle_because")}
        for gpu in explanation.get("gpus", [])
    ]
    steps = max((thread["steps"] or {"count": 0} for thread in explanation["threads"]), key=lambda one: one["count"], default={})
    result = {"said": said, "gpus": gpus, "steps_found": steps.get("count"), "phases": explanation.get("phases")}
    if mode == "healthy":
        return {**result, "verdict": "false alarm" if grave else "right"}
    if not grave:
        return {**result, "verdict": "right" if strength == "weak" else "silent"}
    first_is_right = any(grave[0]["cause"] in causes for causes in truth["cause"])
    causes_found = [any(finding["cause"] in causes for finding in grave) for causes in truth["cause"]]
    verdict = "right" if first_is_right and all(causes_found) else "half" if first_is_right else "wrong"
    result["first_right"] = first_is_right
    if first_is_right:
        result["culprit_right"] = culprit_is_right(grave[0], truth)
        # TRUTH marks where the thread stands that feeds the GPU.
        own = [place for place in grave[0]["where"] if place["file"].endswith(program.name)]
        stands = [place["line"] for place in own if place["role"] == "victim"] or [place["line"] for place in own]
        is_there = [line in truth["lines"] for line in stands]
        result["line"] = "first" if any(is_there[:1]) else "later" if any(is_there) else "no"
    return {**result, "verdict": verdict}


def brief(finding: dict) -> dict:
    kept = {key: finding[key] for key in ("cause", "severity", "confidence", "summary")}
    kept["share"] = finding["impact"]["share"]
    kept["where"] = [f"{Path(place['file']).name}:{place['line']}" for place in finding["where"][:3]]
    kept["culprit"] = finding["culprit"] and {key: finding["culprit"][key] for key in ("pid", "tid", "comm")}
    kept["victim"] = {key: finding["victim"][key] for key in ("pid", "tid", "comm")}
    return kept


def culprit_is_right(finding: dict, truth: dict) -> bool:
    culprit, victim = finding["culprit"] or {}, finding["victim"]
    for wanted in as_list(truth["culprit"]):
        kind, _, comm = wanted.partition(":")
        is_same_process = culprit.get("pid") in (victim["pid"], 0)
        if kind == "self" and is_same_process:
            return True
        if kind == "thread" and is_same_process and culprit.get("tid") != victim["tid"]:
            return True
        if kind == "child" and not is_same_process and culprit.get("comm", "").startswith(comm[:15] or ""):
            return True
    return False


def line(run: dict) -> str:
    said = ", ".join(f"{one['cause']} {one['severity']} {one['share']:.0%}" for one in run.get("said", [])[:3])
    gpu = (run.get("gpus") or [{}])[0]
    idle = f"idle {gpu['idle_share']:.0%} {gpu['interval']}" if gpu else ""
    where = next((one["where"][:1] for one in run.get("said", [])), "")
    error = " " + run["error"].strip().splitlines()[-1][:200] if run.get("error") else ""
    return f"{run['program']:<22} {run['mode']:<8} {run['verdict']:<12} {expected_of(run):<28} said: {said or 'nothing'} {where} {run.get('line', '')} {idle}{error}"


def print_table(runs: list[dict]) -> None:
    print()
    for run in runs:
        print(line(run))
    print(f"\n{summary(runs)}")
    print(f"{sum(run['verdict'] == 'broken' for run in runs)} programs did not run")


def summary(runs: list[dict]) -> str:
    """The counts of all runs that ended, in a sentence."""
    faults = [run for run in runs if run["mode"] == "fault" and run["verdict"] != "broken"]
    healthy = [run for run in runs if run["mode"] == "healthy" and run["verdict"] != "broken"]
    count = lambda test: sum(1 for run in faults if test(run))
    return (
        f"First cause right in {count(lambda run: run.get('first_right'))} of {len(faults)}, "
        f"all causes in {count(lambda run: run['verdict'] == 'right')}, "
        f"culprit in {count(lambda run: run.get('culprit_right'))}, "
        f"line first in {count(lambda run: run.get('line') == 'first')}; "
        f"nothing grave in {sum(run['verdict'] == 'right' for run in healthy)} of {len(healthy)} healthy twins."
    )


def expected_of(run: dict) -> str:
    return " + ".join("/".join(causes) for causes in run["expected"]) if run["mode"] == "fault" else "nothing"


def report_on(files: list[Path]) -> int:
    """Kept results as a page."""
    print("# Incidents\n")
    print("Ordinary PyTorch programs on a real GPU, each with one fault or two and a healthy twin, traced for 7 s with default")
    print("settings. They were written without knowledge of the rules (`bench/gpu/incidents`); the first run of a set is")
    print("shown as it was, before anything was changed because of it. `bench/gpu/incidents.py` runs them and writes this page.")
    for file in sorted(files):
        kept = json.loads(file.read_text())
        runs = kept["runs"]
        print(f"\n## {file.stem.removeprefix('gpu-incidents-')}\n")
        note = f" {kept['note']}" if "note" in kept else ""
        print(f"Build {kept['commit']}, version {kept['version']}. {summary(runs)}{note}\n")
        print("| program | expected | said, with its severity and share of the steady state | |\n|---|---|---|---|")
        for run in runs:
            grave = [one for one in run.get("said", []) if one["severity"] in GRAVE]
            said = ", ".join(f"{one['cause']} {one['severity']} {one['share']:.0%}" for one in grave) or "nothing"
            print(f"| {run['program']} | {expected_of(run)} | {said} | {run['verdict']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
