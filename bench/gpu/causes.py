"""Does gpuwhy explain a real GPU's waiting? Runs PyTorch training healthy and with one fault each, traces it with default
settings, and compares what `gpuwhy explain` says with what was done to it.

    python3 bench/gpu/causes.py GPUWHY_BINARY OUTPUT_FOLDER [--seconds 8] [--only NAME,...]

Prints the table last and writes causes.json with the explanations; copy that to docs/results/gpu-causes.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import machine
import measured_code

# Name: the cause that must come first, None for nothing above low severity; who is to blame.
SCENARIOS = {
    "healthy": (None, None),
    "cpu-hog": ("cpu-preempted", "hog"),
    "slow-loader": ("input-starved", "worker"),
    "item-per-step": ("sync-storm", "self"),
    "empty-cache-per-step": ("alloc-churn", "self"),
}
# The CPUs of the traced program, so that a hog can share them with it.
CPUS = {0, 1}


def model_and_batch():
    """A multilayer perceptron whose step is some hundred launches and a few milliseconds of GPU work."""
    import torch

    layers = []
    for _ in range(12):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, optimizer


class Samples:
    """Batches that take a worker process a known time to make: it computes, as a tokenizer or decoder does."""

    def __init__(self, work_s):
        self.work_s = work_s

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        import torch

        end = time.perf_counter() + self.work_s
        while time.perf_counter() < end:
            pass
        return torch.ones(2048)


def run_workload(scenario, seconds):
    """Inside the traced process: trains for a while and says how far it got."""
    import torch

    os.sched_setaffinity(0, CPUS if scenario == "cpu-hog" else set(range(os.cpu_count())))
    torch.set_num_threads(1)
    model, optimizer = model_and_batch()
    batch = torch.randn(1024, 2048, device="cuda")
    batches = None
    if scenario == "slow-loader":
        from torch.utils.data import DataLoader

        # 64 samples of 0.5 ms on one worker: a batch every 32 ms, several times what a step takes.
        batches = iter(DataLoader(Samples(0.0005), batch_size=64, num_workers=1, pin_memory=False))
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.time() + seconds
    steps = 0
    while time.time() < end:
        if batches is not None:
            batch = next(batches).cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        out = model(batch)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        if scenario == "item-per-step":
            for parameter in model.parameters():
                # A check of every gradient, as people add it while debugging.
                parameter.grad.abs().max().item()
            loss.item()
        if scenario == "empty-cache-per-step":
            del out, loss
            torch.cuda.empty_cache()
        steps += 1
        if steps % 10 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}), flush=True)


def hog():
    while True:
        pass


def start_hogs():
    hogs = []
    for cpu in CPUS:
        for _ in range(2):
            process = subprocess.Popen([sys.executable, __file__, "--hog"])
            os.sched_setaffinity(process.pid, {cpu})
            hogs.append(process)
    return hogs


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return {int(child) for child in found}


def run(gpuwhy, scenario, seconds, folder):
    database = folder / f"{scenario}.db"
    command = [sys.executable, __file__, "--workload", scenario, "--seconds", str(seconds)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hogs = []
    try:
        assert program.stdout.readline().strip() == "ready"
        workers = children(program.pid)
        trace = subprocess.Popen([gpuwhy, "trace", "--live", "never", "-p", str(program.pid), "--out", database],
                                 stderr=subprocess.PIPE, text=True)
        attached = threading.Event()
        log = []

        def listen():
            for line in trace.stderr:
                log.append(line)
                if "tracing" in line:
                    attached.set()

        listener = threading.Thread(target=listen)
        listener.start()
        if not attached.wait(60):
            sys.exit(f"{scenario}: the tracer did not attach\n{''.join(log)}")
        if scenario == "cpu-hog":
            hogs = start_hogs()
        program.stdin.write("go\n")
        program.stdin.flush()
        steps = json.loads(program.stdout.readline())["steps"]
        workers |= children(program.pid)
        program.wait(60)
        trace.wait(60)
        listener.join()
    finally:
        for process in hogs:
            process.kill()
            process.wait()
        program.kill()
    output = subprocess.run([gpuwhy, "explain", database, "--json"], capture_output=True, text=True, check=True)
    page = subprocess.run([gpuwhy, "explain", database], capture_output=True, text=True, check=True).stdout
    blamed = {"hog": {process.pid for process in hogs}, "worker": workers, "self": {program.pid}, None: set()}
    return steps, json.loads(output.stdout), page, blamed[SCENARIOS[scenario][1]], "".join(log)


def without_places(value, key: str = ""):
    """The same without the machine's folders and control groups, which say nothing about gpuwhy."""
    if isinstance(value, dict):
        return {name: without_places(held, name) for name, held in value.items()}
    if isinstance(value, list):
        return [without_places(held, key) for held in value]
    if isinstance(value, str) and key in ("file", "cgroup"):
        return Path(value).name if key == "file" else "/"
    return value


def judge(scenario, explanation, culprits):
    cause, _ = SCENARIOS[scenario]
    grave = [finding for finding in explanation["findings"] if finding["severity"] != "low"]
    if cause is None:
        return not grave, not grave
    first = grave[0] if grave else {"cause": None, "culprit": None}
    blamed = (first.get("culprit") or {}).get("pid")
    return first["cause"] == cause, blamed in culprits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gpuwhy", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--workload")
    parser.add_argument("--hog", action="store_true")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", default=",".join(SCENARIOS))
    arguments = parser.parse_args()
    if arguments.hog:
        hog()
    if arguments.workload:
        return run_workload(arguments.workload, arguments.seconds)
    code = measured_code.describe()
    results = []
    pages = []
    with tempfile.TemporaryDirectory() as temporary:
        for scenario in arguments.only.split(","):
            steps, explanation, page, culprits, log = run(arguments.gpuwhy, scenario, arguments.seconds, Path(temporary))
            cause_right, culprit_right = judge(scenario, explanation, culprits)
            results.append({"scenario": scenario, "expected": SCENARIOS[scenario][0], "steps": steps,
                            "cause_right": cause_right, "culprit_right": culprit_right, "explanation": explanation})
            pages.append(f"== {scenario}, {steps} steps\n{page}")
            database = Path(temporary) / f"{scenario}.db"
            if database.stat().st_size < 20 << 20:
                (Path(arguments.folder) / database.name).write_bytes(database.read_bytes())
    result = {"machine": machine.describe(), **code, "seconds": arguments.seconds, "scenarios": without_places(results)}
    Path(arguments.folder, "causes.json").write_text(json.dumps(result, indent=1))
    print("\n".join(pages))
    print(f"{'scenario':<22}{'expected':<16}{'first finding':<18}{'severity':<10}{'sure':>5}{'steps':>7}  cause  culprit")
    for one in results:
        findings = one["explanation"]["findings"]
        first = findings[0] if findings else {"cause": "-", "severity": "-", "confidence": 0}
        print(f"{one['scenario']:<22}{one['expected'] or 'nothing':<16}{first['cause']:<18}{first['severity']:<10}"
              f"{first['confidence']:>5.2f}{one['steps']:>7}  {'ok' if one['cause_right'] else 'WRONG':<6} "
              f"{'ok' if one['culprit_right'] else 'WRONG'}")


if __name__ == "__main__":
    main()
