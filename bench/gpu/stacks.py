"""Does gpuwhy name the line? Traces training scripts (stacks_cases.py) with one known fault each on a real GPU, with
default settings, and looks for the line at fault in what `gpuwhy explain` says. Also says how many stacks were complete
and what they cost (stacks_facts.py).

    python3 bench/gpu/stacks.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--seconds 15] [--minutes 7.5] [--only NAME,...]
                                [--keep-traces] [--list]

A line is found `first` when it is the first place of the first finding with an expected cause (for the line that waits:
the first of the victim's places), `later` when it is another one. Prints the table last and writes stacks.json after
each case; copy that to docs/results/gpu-stacks.json. --list shows the cases and needs no GPU. Needs root.
"""

import argparse
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import measured_code
from stacks_cases import CASES, Case
from stacks_facts import MOMENTS, QUESTIONS, shares

# What a case may take besides training: imports, the tracer's start and end.
AROUND_S = 45
ANSWER_S = 40
MOST_BYTES_KEPT = 15 << 20
# Names of C++ functions may take pages.
MOST_NAME = 400


def main() -> int:
    options = parse_arguments()
    if options.list:
        return show_cases(options.only)
    deadline = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.describe(), **measured_code.describe(), "seconds": options.seconds, "cases": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        warm_up(folder)
        for name in options.only:
            result = {"case": name, "expected": CASES[name].causes}
            try:
                run_case(Bench(options, folder, deadline), name, result)
            except Exception as error:  # One case that does not run leaves the others.
                result["error"] = without_folders(f"{type(error).__name__}: {error}")
                print(f"{name}: {result['error']}", flush=True)
            report["cases"].append(without_folders(result))
            (options.out / "stacks.json").write_text(json.dumps(report, indent=1) + "\n")
    print_table(report["cases"])
    return int(any("error" in result for result in report["cases"]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--keep-traces", action="store_true", help="leave CASE.db.gz beside the results")
    parser.add_argument("--list", action="store_true", help="show the cases and their marked lines, and end")
    options = parser.parse_args()
    if unknown := set(options.only) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if not options.list and not options.gpuwhy.exists():
        parser.error(f"no {options.gpuwhy}; name the binary with --gpuwhy")
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def show_cases(names: list[str]) -> int:
    for name in names:
        case = CASES[name]
        lines = case.script().splitlines()
        compile(case.script(), f"{name}.py", "exec")
        print(f"{name}: {' or '.join(case.causes) or 'nothing above low'}")
        for number in sorted(case.marked("blame") + case.marked("victim")):
            print(f"  {name}.py:{number}  {lines[number - 1].strip()}")
    return 0


def warm_up(folder: Path) -> None:
    """Reads the libraries into memory, so that no case waits for a disk that the next one does not wait for."""
    script = folder / "warm_up.py"
    script.write_text(CASES["healthy"].script())
    finished = subprocess.run([sys.executable, script, "1"], capture_output=True, text=True, timeout=120)
    if finished.returncode:
        sys.exit(f"training does not run here, untraced:\n{finished.stderr[-2000:]}")


class Bench:
    """Runs gpuwhy, never beyond the time that is left."""

    def __init__(self, options: argparse.Namespace, folder: Path, deadline: float):
        self.options, self.folder, self.deadline = options, folder, deadline

    def trace(self, script: Path, database: Path) -> tuple[str, str]:
        seconds = self.options.seconds
        if self.deadline - time.monotonic() < seconds + AROUND_S / 2:
            raise TimeoutError("no time left for this case")
        program = ["--", sys.executable, str(script), str(seconds)]
        return self.run(["trace", "--live", "never", "--out", str(database), *program], seconds + AROUND_S)

    def ask(self, *arguments: str) -> list | dict:
        return json.loads(self.run([*arguments, "--json"], ANSWER_S)[0])

    def run(self, arguments: list[str], limit_s: float) -> tuple[str, str]:
        """Its stdout and stderr. It has a session of its own, so that the program it traces ends with it."""
        process = subprocess.Popen([self.options.gpuwhy, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        try:
            stdout, stderr = process.communicate(timeout=min(limit_s, max(1, self.deadline - time.monotonic())))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode:
            raise RuntimeError(f"gpuwhy {arguments[0]} ended with {process.returncode}: {stderr[-1500:]}")
        return stdout, stderr


def run_case(bench: Bench, name: str, result: dict) -> None:
    """Fills the result as it goes: what is known stays when a later question fails."""
    case, script, database = CASES[name], bench.folder / f"{name}.py", bench.folder / f"{name}.db"
    script.write_text(case.script())
    began = time.monotonic()
    stdout, stderr = bench.trace(script, database)
    result["traced_s"] = round(time.monotonic() - began, 1)
    result["trace_bytes"] = database.stat().st_size
    result["said"] = stderr[-1500:]
    if bench.options.keep_traces:
        keep(database, bench.options.out)
    result.update(json.loads(stdout.strip().splitlines()[-1]))
    began = time.monotonic()
    result["findings"] = bench.ask("explain", str(database))["findings"]
    result["explaining_s"] = round(time.monotonic() - began, 1)
    result.update(judge(case, script.name, result["findings"]))
    for question, sql in QUESTIONS.items():
        result[question] = bench.ask("query", str(database), sql)
    result["shares"] = {moment: shares(result["walks"], moment) for moment in (*MOMENTS, "all")}
    lines = ", ".join(map(str, case.marked("blame"))) or "NULL"
    is_blamed = f"file LIKE '%{script.name}' AND line IN ({lines})"
    sql = f"SELECT count(DISTINCT stack_id) AS stacks FROM stack_lines WHERE {is_blamed}"
    result["with_blamed_line"] = bench.ask("query", str(database), sql)
    print(f"== {name}, {result['steps']} steps", *map(told, result["findings"]), sep="\n", flush=True)


def keep(database: Path, out: Path) -> None:
    packed = gzip.compress(database.read_bytes(), 6)
    if len(packed) <= MOST_BYTES_KEPT:
        (out / f"{database.name}.gz").write_bytes(packed)


def judge(case: Case, script: str, findings: list[dict]) -> dict:
    grave = [finding for finding in findings if finding["severity"] != "low"]
    cause = grave[0]["cause"] if grave else None
    is_right = cause in case.causes if case.causes else cause is None
    first = grave[0]["where"] if grave else []
    expected = next((finding["where"] for finding in findings if finding["cause"] in case.causes), [])
    victims = [place for place in expected if place["role"] == "victim"]
    return {"cause": cause, "is_cause_right": is_right,
            "blamed_line": position(expected, script, case.marked("blame")),
            "victim_line": position(victims, script, case.marked("victim")),
            "blamed_line_of_first_finding": position(first, script, case.marked("blame"))}


def position(places: list[dict], script: str, lines: list[int]) -> str | None:
    if not lines:
        return None
    found = [Path(place["file"]).name == script and place["line"] in lines for place in places]
    return "first" if found[:1] == [True] else "later" if any(found) else "no"


def without_folders(value):
    """Where files lie on that machine is nobody's business: packages keep their own folders, all else only its name."""
    if isinstance(value, dict):
        return {key: without_folders(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(one) for one in value]
    if not isinstance(value, str):
        return value
    value = re.sub(r"(?<!\w)/[\w.+@~-][\w.+@~/-]*/(?:site|dist)-packages/", "", value)
    value = re.sub(r"(?<![\w./])\.{0,2}/(?:[\w.+@~-]+/)+", "", value)
    return value if "\n" in value else value[:MOST_NAME]


def told(finding: dict) -> str:
    places = [f"{place['role']} {place['file']}:{place['line']} {place['function']}" for place in finding["where"]]
    first = f"  {finding['cause']} ({finding['severity']}, {finding['confidence']:.2f}): {finding['summary']}"
    return without_folders("\n".join([first, *(f"    {place}" for place in places)]))


def print_table(results: list[dict]) -> None:
    """Shares in percent; the second of a pair is from ten seconds on, or the mean."""
    print(f"\n{'case':<18}{'cause found':<16}{'expected':<22}{'ok':<5}{'line':<8}{'victim':<8}{'native %':>10}"
          f"{'Python %':>10}{'us/walk':>9}{'walks':>8}{'tracer %':>11}")
    for one in results:
        of_all, tracer = one.get("shares", {}).get("all", {}), (one.get("tracer") or [{}])[0]
        native, python, cost = (f"{percent(pair[0])} {percent(pair[1])}" for pair in (
            (of_all.get("native"), of_all.get("native_later")), (of_all.get("python"), of_all.get("python_later")),
            (tracer.get("most"), tracer.get("mean"))))
        is_right = {True: "yes", False: "NO", None: "-"}[one.get("is_cause_right")]
        line, victim = one.get("blamed_line") or "-", one.get("victim_line") or "-"
        cause = one.get("cause") or ("not run" if "is_cause_right" not in one else "nothing")
        mean_us = f"{of_all['mean_us']:.1f}" if of_all.get("mean_us") else "-"
        print(f"{one['case']:<18}{cause:<16}{' or '.join(one['expected']) or 'nothing':<22}{is_right:<5}"
              f"{line:<8}{victim:<8}{native:>10}{python:>10}{mean_us:>9}{of_all.get('walks', '-'):>8}{cost:>11}")


def percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{100 * share:.2f}" if share < 0.1 else f"{100 * share:.0f}"


if __name__ == "__main__":
    sys.exit(main())
