"""Is the rank that others wait for named, and why it is late? Traces small trainings (DistributedDataParallel and
fully sharded) over real NCCL, whose ranks share the one GPU (training_rank.py), and compares what `gpuwhy explain` says
with which rank is held up.

    python3 bench/gpu/stragglers.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--ranks 2,4] [--models ddp,fsdp]
                                    [--seconds 4] [--seeds 1] [--faults none,sleep,...] [--minutes 8] [--ahead 2] [--keep]

A job has the GPU to itself; the next ones import meanwhile, each under its own tracer. Prints the table last and writes
stragglers.json after each run; with --keep the traces too. Needs root.

    python3 bench/gpu/stragglers.py --report docs/results/gpu-stragglers*.json > docs/stragglers.md
"""

import argparse
import fcntl
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from kept_traces import KeptTraces
from turns import in_turn

HERE = Path(__file__).resolve().parent
# What the late rank does by the summary, for each fault.
DOING = {
    "none": "",
    "sleep": "asleep",
    "compute": "computing",
    "io": "waiting for disk",
    "lock": "waiting for a lock",
    "crowd": "waiting for a CPU",
    "loader": "waiting for input",
    "hang": "",
}
# The cause that the late rank has of its own, which may come first instead.
OWN_CAUSE = {
    "sleep": "",
    "compute": "host-compute",
    "io": "io-wait",
    "lock": "lock-wait",
    "crowd": "cpu-preempted",
    "loader": "input-starved",
    "hang": "",
}
# Imports, communicators, the tracer's start and end, and jobs that have the GPU before.
AROUND_S = 120
# When somebody has had enough of a job that hangs.
HANG_S = 18


def main() -> int:
    if sys.argv[1:2] == ["--job"]:
        return job(*sys.argv[2:])
    if sys.argv[1:2] == ["--report"]:
        return report_on([Path(name) for name in sys.argv[2:]])
    import machine
    import measured_code

    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    kept = KeptTraces(options.out if options.keep else None)
    report = {"machine": machine.describe(), **measured_code.describe(), "seconds": options.seconds, "runs": []}
    wanted = list(itertools.product(range(options.seeds), options.models, options.ranks, options.faults))
    for run in in_turn(partial(one_run, options, kept), wanted, options.ahead, options.minutes):
        report["runs"].append(run)
        (options.out / "stragglers.json").write_text(json.dumps(report, indent=1) + "\n")
        print(line(run), flush=True)
    print()
    for run in report["runs"]:
        print(line(run))
    print(f"{sum(run['is_right'] for run in report['runs'])} of {len(report['runs'])} right, {len(wanted)} wanted")
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[2, 4])
    parser.add_argument("--models", type=names, default=["ddp"])
    parser.add_argument("--faults", type=names, default=[fault for fault in DOING if fault != "hang"])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--ahead", type=int, default=2, help="how many jobs import while another one has the GPU")
    parser.add_argument("--keep", action="store_true", help="bring the traces home")
    options = parser.parse_args()
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def one_run(
    options: argparse.Namespace, kept: KeptTraces, seed: int, model: str, ranks: int, fault: str, turn: str
) -> dict:
    late_rank = (seed + ranks - 1) % ranks
    run = {"model": model, "ranks": ranks, "fault": fault, "late_rank": late_rank, "seed": seed, "is_right": False}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.db"
        job = [sys.executable, __file__, "--job", str(ranks), str(options.seconds), fault, str(late_rank), turn, model]
        traced = [str(options.gpuwhy), "trace", "--out", str(trace), "--", *job]
        began = time.monotonic()
        process = subprocess.Popen(traced, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            stdout, stderr = process.communicate(timeout=options.seconds + AROUND_S)
        except subprocess.TimeoutExpired:
            return {**run, "error": "it did not end in time"}
        finally:
            end(process)
        run["wall_s"] = round(time.monotonic() - began, 1)
        told = [json.loads(text) for text in stdout.splitlines() if text.startswith('{"rank"')]
        if len(told) != ranks and fault != "hang":
            return {**run, "error": (stderr or stdout)[-1500:]}
        kept.keep(trace, f"{model}-{ranks}-{fault}-{late_rank}-{seed}-{process.pid}")
        asked = subprocess.run([str(options.gpuwhy), "explain", str(trace), "--json"], capture_output=True, text=True)
        if asked.returncode:
            return {**run, "error": asked.stderr[-1500:]}
        run["steps"] = told[0]["steps"] if told else None
        return {**run, **score(json.loads(asked.stdout), fault, late_rank)}


def end(process: subprocess.Popen) -> None:
    """Ranks that hang go with the session that they are in."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def score(explanation: dict, fault: str, late_rank: int) -> dict:
    """Which rank is named, and what it is said to do."""
    grave = [finding for finding in explanation["findings"] if finding["severity"] in ("medium", "high")]
    said = [[finding["cause"], finding["severity"], finding["summary"]] for finding in grave]
    return {"said": said, **judged(said, fault, late_rank)}


def judged(said: list, fault: str, late_rank: int) -> dict:
    about_ranks = [one for one in said if one[0] in ("straggler", "collective-hang")]
    if fault == "none":
        return {"is_right": not about_ranks}
    cause, _, first = said[0] if said else ("", "", "")
    is_about_ranks = bool(about_ranks) and said[0] == about_ranks[0]
    is_own = cause == OWN_CAUSE[fault] and f", rank {late_rank}) " in first.split(" waited ")[0] + " "
    is_named = is_own or is_about_ranks and first.startswith(f"Rank {late_rank} of")
    is_cause_right = is_own or is_about_ranks and DOING[fault] in first
    return {"is_named": is_named, "is_cause_right": is_cause_right, "is_right": is_named and is_cause_right}


def report_on(files: list[Path]) -> int:
    """The page about them."""
    reports = [json.loads(file.read_text()) for file in files]
    runs = [
        {"model": "ddp", "commit": kept["commit"], **run, **judged(run.get("said", []), run["fault"], run["late_rank"])}
        for kept in reports
        for run in kept["runs"]
    ]
    late, balanced = [run for run in runs if run["fault"] != "none"], [run for run in runs if run["fault"] == "none"]
    count = lambda runs, key: sum(bool(run.get(key)) for run in runs)
    machine = reports[0]["machine"]
    print(REPORT.format(
        build=", ".join(dict.fromkeys(run["commit"] for run in runs)), gpu=machine["gpu"], torch=machine["torch"],
        named=count(late, "is_named"), causes=count(late, "is_right"), late=len(late),
        silent=count(balanced, "is_right"), balanced=len(balanced),
        note="".join(f" {kept['note']}" for kept in reports if "note" in kept)))
    print("| model | ranks | fault | in rank | said first | |\n|---|---:|---|---:|---|---|")
    for run in runs:
        said = run["said"][0][2] if run.get("said") else run.get("error", "nothing")[:200]
        rank = "" if run["fault"] == "none" else run["late_rank"]
        verdict = "right" if run["is_right"] else "wrong"
        print(f"| {run['model']} | {run['ranks']} | {run['fault']} | {rank} | {said} | {verdict} |")
    return 0


REPORT = """# Ranks that wait for each other

Small trainings over real NCCL, whose ranks share one GPU: with DistributedDataParallel (`ddp`) or fully sharded
(`fsdp`). In each, one rank is held up for about 30 ms a step, for the reason that the fault is called after, or stops
taking part (`hang`). Right: the first finding names that rank and what it did, as `straggler` or as that rank's own
cause. `bench/gpu/stragglers.py` runs them and writes this page.

Build {build}; {gpu}, PyTorch {torch}. The rank is named first in {named} of {late} runs, with what it did in {causes}.
No rank is named in {silent} of {balanced} balanced runs.{note}
"""


def line(run: dict) -> str:
    verdict = "right" if run["is_right"] else "WRONG"
    start = f"{run['model']}, {run['ranks']} ranks, {run['fault']} in {run['late_rank']}, {run.get('steps')} steps, {run.get('wall_s')} s"
    return f"{start}: {verdict} {run.get('error') or run.get('said')}"


def job(ranks: str, seconds: str, fault: str, late_rank: str, turn: str, model: str) -> int:
    port = str(29000 + os.getpid() % 2000)
    command = [sys.executable, str(HERE / "training_rank.py")]
    ours, theirs = zip(*(socket.socketpair() for _ in range(int(ranks))))
    children = [
        subprocess.Popen([*command, str(rank), ranks, seconds, fault, late_rank, port, model], stdin=end)
        for rank, end in enumerate(theirs)
    ]

    def end_too(*_) -> None:
        for child in children:
            child.kill()

    signal.signal(signal.SIGTERM, end_too)
    for end in theirs:
        end.close()
    for rank in ours:
        rank.recv(1)
    with open(turn) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for rank in ours:
            rank.send(b"g")
        if fault == "hang":
            time.sleep(HANG_S)
            os.kill(os.getppid(), signal.SIGTERM)  # the tracer, which ends this job
        return max(child.wait() for child in children)


if __name__ == "__main__":
    sys.exit(main())
