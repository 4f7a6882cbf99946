"""Does gpuwhy count what happened? Runs each workload under `gpuwhy trace` while CUPTI, through the PyTorch profiler,
records the same steps, and compares launches, copies, memsets, syncs and allocations.

    python3 bench/gpu/counts.py GPUWHY_BINARY OUTPUT_FOLDER

Prints the table last and writes counts.json; copy that to docs/results/gpu-counts.json.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import machine
import measured_code

STEPS = {"training": 10, "decode": 5, "graph": 5, "allocation": 10}

# What both sides call the same thing: name, gpuwhy's driver functions, CUPTI's runtime and driver functions.
KINDS = [
    ("launches", "cuLaunchKernel%", ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel")),
    ("copies", "cuMemcpy%", ("cudaMemcpy", "cuMemcpy")),
    ("memsets", "cuMemset%", ("cudaMemset", "cuMemset")),
    ("stream syncs", "cuStreamSynchronize", ("cudaStreamSynchronize", "cuStreamSynchronize")),
    ("device syncs", "cuCtxSynchronize", ("cudaDeviceSynchronize", "cuCtxSynchronize")),
    ("allocations", "cuMemAlloc", ("cudaMalloc", "cuMemAlloc")),
    ("frees", "cuMemFree", ("cudaFree", "cuMemFree")),
    ("graph launches", "cuGraphLaunch", ("cudaGraphLaunch", "cuGraphLaunch")),
    ("event records", "cuEventRecord%", ("cudaEventRecord", "cuEventRecord")),
]


def run_workload(name):
    """Inside the traced process: profiles the steps and prints when they ran and what CUPTI saw."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from workloads import WORKLOADS

    step = WORKLOADS[name]()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()  # the profiler's own first-time work falls in here
        torch.cuda.synchronize()
        with record_function("measured"):
            from_ns = time.time_ns()
            for _ in range(STEPS[name]):
                step()
            torch.cuda.synchronize()
            to_ns = time.time_ns()
    events = list(profiler.profiler.kineto_results.events())
    cpu = torch._C._autograd.DeviceType.CPU
    measured = next(e for e in events if e.name() == "measured" and e.device_type() == cpu)
    start, end = measured.start_ns(), measured.start_ns() + measured.duration_ns()
    inside = [e for e in events if start <= e.start_ns() < end and e.name() != "measured"]
    api = Counter(e.name() for e in inside if e.device_type() == cpu and e.name().startswith("cu"))
    # Ranges such as "Optimizer.step" are shown on both sides; a kernel has a name of its own.
    ranges = {e.name() for e in events if e.device_type() == cpu}
    work = [e.name() for e in inside if e.device_type() != cpu and e.name() not in ranges]
    gpu = Counter(name.split(" ")[0] if name.startswith("Mem") else "kernel" for name in work)
    print(json.dumps({"from_ns": from_ns, "to_ns": to_ns, "api": api, "gpu": gpu}))


def trace(gpuwhy, name, folder):
    database = folder / f"{name}.db"
    command = [gpuwhy, "trace", "--budget", "0", "--live", "never", "--out", database, "--", sys.executable, __file__, "--workload", name]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode:
        sys.exit(f"{name}: exit code {finished.returncode}\n{finished.stdout}\n{finished.stderr}")
    truth = json.loads(finished.stdout.strip().splitlines()[-1])
    return database, truth, finished.stderr


def query(gpuwhy, database, sql):
    output = subprocess.run([gpuwhy, "query", database, sql, "--json"], capture_output=True, text=True, check=True)
    return json.loads(output.stdout)


def compare(gpuwhy, name, database, truth):
    window = f"timestamp_ns BETWEEN {truth['from_ns']} AND {truth['to_ns']}"
    rows = []
    for what, ours, theirs in KINDS:
        sql = f"SELECT count(*) AS n FROM cuda_events WHERE layer = 'driver' AND op LIKE '{ours}' AND {window}"
        counted = query(gpuwhy, database, sql)[0]["n"]
        exact = what in ("allocations", "frees", "stream syncs", "device syncs", "graph launches")
        matches = [key for key in truth["api"] if any(key == t or (not exact and key.startswith(t)) for t in theirs)]
        seen = sum(truth["api"][key] for key in matches)
        if counted or seen:
            rows.append({"workload": name, "what": what, "gpuwhy": counted, "cupti": seen, "calls": matches})
    kernels = truth["gpu"].get("kernel", 0)
    if name != "graph":
        launched = next(row["gpuwhy"] for row in rows if row["what"] == "launches")
        rows.append({"workload": name, "what": "kernels run by the GPU", "gpuwhy": launched, "cupti": kernels, "calls": []})
    return rows


def sound(gpuwhy, database):
    """The promises every trace keeps."""
    facts = query(gpuwhy, database, "SELECT seen, stored, probe_cost_ns, attach_path FROM sessions")[0]
    lost = query(gpuwhy, database, "SELECT coalesce(sum(count), 0) AS n FROM losses WHERE reason IN ('ring_full', 'malformed', 'expired', 'not_written')")
    split = query(gpuwhy, database, "SELECT max(abs(duration_ns - running_ns - runqueue_ns - blocked_ns)) AS worst, min(running_ns) AS least FROM cuda_events")[0]
    devices = query(gpuwhy, database, "SELECT device, count(*) AS n FROM cuda_events GROUP BY device")
    callers = query(gpuwhy, database, "SELECT caller, runtime_op IS NOT NULL AS by_runtime, count(*) AS n FROM cuda_events WHERE op LIKE 'cuLaunchKernel%' GROUP BY 1, 2 ORDER BY n DESC LIMIT 6")
    return {**facts, "lost": lost[0]["n"], **split, "adds_up": facts["seen"] == facts["stored"] + lost[0]["n"], "devices": devices, "callers": callers}


def main():
    if sys.argv[1] == "--workload":
        return run_workload(sys.argv[2])
    gpuwhy, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    results = {"machine": machine.describe(), **measured_code.describe(), "rows": [], "sound": {}}
    log = []
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            database, truth, stderr = trace(gpuwhy, name, Path(folder))
            results["rows"] += compare(gpuwhy, name, database, truth)
            results["sound"][name] = sound(gpuwhy, database)
            log.append(f"== {name}\n{stderr}\nCUPTI: {truth['api']}\nGPU: {truth['gpu']}")
    for row in results["rows"]:
        row["difference"] = "equal" if row["gpuwhy"] == row["cupti"] else f"{row['gpuwhy'] - row['cupti']:+d}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "counts.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "counts.log").write_text("\n".join(log))
    print("\n".join(log)[-3000:])
    print(json.dumps(results["sound"], indent=1))
    print(f"{'workload':12} {'what':24} {'gpuwhy':>8} {'CUPTI':>8}  difference")
    for row in results["rows"]:
        print(f"{row['workload']:12} {row['what']:24} {row['gpuwhy']:8} {row['cupti']:8}  {row['difference']}")


if __name__ == "__main__":
    main()
