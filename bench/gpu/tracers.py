"""The programs that overhead.py traces with, and what they say about a slice."""

import json
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import threading
from contextlib import closing
from pathlib import Path

from measured import Measured

# What the workloads call of the launches, copies, waits and allocations that gpuwhy probes: a probe that is never hit
# costs nothing, but hundreds of them take bpftrace long to attach.
BPFTRACE_FUNCTIONS = (
    "cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize",
    "cuEventRecord", "cuStreamWaitEvent", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc",
)


class NotRun(Exception):
    """Why a way cannot be measured here."""


class Running:
    """A program that traces until it is interrupted."""

    def __init__(self, command: list[str], ready: str):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.ready = ready
        self.lines: list[str] = []
        self.is_ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if self.ready in line:
                self.is_ready.set()

    def said(self) -> str:
        return " | ".join(self.lines[-5:])

    def check(self) -> None:
        if self.process.poll() is not None:
            self.reader.join()
            raise NotRun(f"the tracer ended early: {self.said()}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()


class Gpuwhy:
    """`gpuwhy trace`, within its budget or, as the other way, without one."""

    def __init__(self, binary: Path, folder: Path, keeps_budget: bool):
        if not binary.exists():
            raise NotRun(f"no {binary}")
        usage = subprocess.run([binary.resolve(), "trace", "--help"], capture_output=True, text=True).stdout
        has_budget = "--budget" in usage
        if keeps_budget and not has_budget:
            raise NotRun("this gpuwhy has no --budget: its trace keeps every call, which is the way 'everything'")
        self.file = folder / "slice.db"
        self.command = [str(binary.resolve()), "trace", "--live", "never", "--out", str(self.file)]
        if has_budget and not keeps_budget:
            self.command += ["--budget", "0"]

    def start(self, measured: Measured) -> Running:
        for left in self.file.parent.glob(f"{self.file.name}*"):
            left.unlink()
        return Running([*self.command, "-p", str(measured.pid)], "tracing ")

    def facts(self, running: Running, measured: Measured, slice_: dict) -> dict:
        """What its trace says about a slice; what the file has no table for is None."""
        span = {"pid": measured.pid, "from_ns": slice_["from_ns"], "to_ns": slice_["to_ns"]}
        answers = {}
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as trace:
            for name, sql in QUESTIONS.items():
                try:
                    answers[name] = trace.execute(sql, span).fetchone()[0]
                except sqlite3.OperationalError:
                    answers[name] = None
        for name in ("calibrations", "losses", "rungs"):
            answers[name] = answers[name] and json.loads(answers[name])
        return answers


# Buckets of about a second begin at any time: those count whose middle lies in the slice.
INSIDE = "bucket_ns + wall_ns / 2 BETWEEN :from_ns AND :to_ns"
QUESTIONS = {
    # The threads take turns at launching: what each loses of its time adds up.
    "estimate": f"""SELECT sum(share) FROM (SELECT 1.0 * sum(tracer_ns) / sum(wall_ns) AS share
        FROM thread_times WHERE pid = :pid AND {INSIDE} GROUP BY tid)""",
    "agent_cpu": f"SELECT 1.0 * sum(cpu_ns) / sum(wall_ns) FROM agent_usage WHERE {INSIDE}",
    "hooks": f"SELECT 1.0 * sum(hooks_ns) / sum(wall_ns) FROM agent_usage WHERE {INSIDE}",
    "probe_cost_ns": "SELECT probe_cost_ns FROM sessions",
    "calibrations": "SELECT json_group_object(what, ns) FROM calibrations",
    # Of the whole session, the settling too.
    "session_s": "SELECT (ended_ns - started_ns) / 1e9 FROM sessions",
    "kept": "SELECT count(*) FROM calls",
    "counted": "SELECT sum(count) FROM call_counts",
    "losses": "SELECT json_group_object(reason, count) FROM losses",
    "rungs": """SELECT json_group_array(json_object('op', op, 'rung', rung, 'fraction', fraction, 'reason', reason))
        FROM (SELECT * FROM rungs WHERE pid = :pid AND at_ns <= :to_ns ORDER BY at_ns DESC LIMIT 20)""",
}


class Bpftrace:
    """A histogram of how long the same functions take."""

    def __init__(self, archive: Path, folder: Path):
        if archive.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            own = folder / "bpftrace"
            loader = [str(own / "ld.so"), "--inhibit-cache", "--library-path", str(own / "lib")]
            self.command = [*loader, str(own / "bpftrace")]
        elif installed := shutil.which("bpftrace"):
            self.command = [installed]
        else:
            raise NotRun(f"no {archive} and no bpftrace installed; hint: bench/gpu/pack_bpftrace.sh")
        version = subprocess.run([*self.command, "--version"], capture_output=True, text=True)
        if version.returncode:
            raise NotRun(f"bpftrace does not start: {version.stdout} {version.stderr}")
        self.version = version.stdout.strip()

    def start(self, measured: Measured) -> Running:
        library = measured.mapped("libcuda.so")
        if library is None:
            raise NotRun("libcuda is not loaded")
        entries = ",".join(f"uprobe:{library}:{function}" for function in BPFTRACE_FUNCTIONS)
        returns = ",".join(f"uretprobe:{library}:{function}" for function in BPFTRACE_FUNCTIONS)
        # What BEGIN prints appears once every probe is attached.
        script = f"""BEGIN {{ printf("attached\\n"); }}
            {entries} {{ @start[tid] = nsecs; }}
            {returns} /@start[tid]/ {{ @ns = hist(nsecs - @start[tid]); delete(@start[tid]); }}"""
        return Running([*self.command, "-p", str(measured.pid), "-e", script], "attached")

    def facts(self, running: Running, measured: Measured, slice_: dict) -> dict:
        """The calls in the bars of its histogram, those while it settled too."""
        bars = (re.search(r"\)\s+(\d+) \|", line) for line in running.lines)
        return {"counted": sum(int(bar.group(1)) for bar in bars if bar)}
