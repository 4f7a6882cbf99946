# SPDX-License-Identifier: Apache-2.0
"""The training job of `scenario.c` in Python, for the faults that only Python has.

    scenario.py --driver libcuda.so.1 --fault NAME --seed N [--threads N] [--duration-ms N] [--healthy]

It says the same things: "ready", then, after "go" on stdin and when its time is over, who was hit and who is to blame.
"""

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

LAUNCH, AWAIT = 7, 8  # fake_cuda.h: FAKE_LAUNCH, FAKE_AWAIT
SET_DEATH_SIGNAL = 1  # prctl
MS = 1_000_000


def word(value):
    return ctypes.c_uint64(value)


def burn(ns):
    """Computes in pure Python for this much CPU time."""
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:  # blame: gil-holder python-dataloader
        sum(range(500))  # blame: gil-holder python-dataloader


def say(**line):
    print(json.dumps(line), flush=True)


class Shape:
    """What a step is like."""

    def __init__(self, seed):
        chance = random.Random(seed)
        share = chance.uniform(0.30, 0.60)
        self.launches = chance.randint(6, 12)
        self.gpu_ns = int(chance.uniform(5, 10) * MS)
        self.fault_ns = int(self.gpu_ns * share / (1 - share))
        self.fault_share = share


class Dispatcher:
    """A thread that feeds the GPU."""

    def __init__(self, job, index):
        self.job, self.index = job, index
        self.is_victim = index == 0 or job.fault.hits_all
        self.shape = Shape(job.seed * 64 + index)
        self.steps = self.fault_ns = 0

    def run(self):
        driver, context, self.stream = self.job.driver, ctypes.c_void_p(), ctypes.c_uint64()
        self.tid = threading.get_native_id()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        driver.cuCtxSetCurrent(context)
        driver.cuStreamCreate(ctypes.byref(self.stream), 0)
        driver.fake_cuda_kernel_ns(word(self.shape.gpu_ns // self.shape.launches))
        while not self.job.is_over():
            self.step()

    def step(self):
        started = time.monotonic_ns()
        if self.is_victim:
            self.job.fault.get_input()
        self.fault_ns += time.monotonic_ns() - started
        for _ in range(self.shape.launches):
            self.launch()
        host, device = word(0x10000), word(0x7E0000000000)
        self.job.driver.cuMemcpyDtoHAsync_v2(host, device, word(65536), self.stream)  # victim: gil-holder
        self.job.driver.cuStreamSynchronize(self.stream)  # victim: gil-holder
        self.steps += 1

    def launch(self):
        kernel, none = word(0x5EED0001), word(0)
        self.job.driver.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, self.stream, none, none)  # victim: gil-holder

    def tell(self):
        numbers = {"steps": self.steps, "fault_ns": self.fault_ns}
        unknown = {"major_faults": 0, "involuntary_switches": 0, "run_queue_ns": 0}
        say(kind="thread", tid=self.tid, is_victim=self.is_victim, **numbers, **unknown)


class GilHolder:
    """Another thread computes now and then, in Python or in a library that lets go of the interpreter lock."""

    hits_all = True
    CYCLE_NS = 80 * MS
    LOSS_WHILE_BUSY = 0.5  # at the least, a dispatch thread waits 5 ms for the lock after it has waited for the GPU

    def __init__(self, job):
        self.job = job
        self.busy_ns = int(self.CYCLE_NS * min(0.95, Shape(job.seed * 64).fault_share / self.LOSS_WHILE_BUSY))
        self.work = self.hash if job.healthy else burn

    def begin(self):
        threading.Thread(target=self.compute, daemon=True).start()

    def compute(self):
        say(kind="blame", pid=os.getpid(), tid=threading.get_native_id())
        while not self.job.is_over():
            self.work(self.busy_ns)  # blame: gil-holder
            time.sleep((self.CYCLE_NS - self.busy_ns) / 1e9)

    @staticmethod
    def hash(ns):
        text = bytes(4 * 1024 * 1024)
        end = time.thread_time_ns() + ns
        while time.thread_time_ns() < end:
            hashlib.sha256(text).digest()

    def get_input(self):
        pass

    def words(self):
        return ""

    def end(self):
        pass


class SlowLoader:
    """A worker process makes the batches, more slowly than they are used or faster."""

    hits_all = False

    def __init__(self, job):
        shape = Shape(job.seed * 64)
        self.batch_ns = shape.gpu_ns // 3 if job.healthy else shape.gpu_ns + shape.fault_ns
        fork = multiprocessing.get_context("fork")
        self.queue, self.has_gone = fork.Queue(maxsize=2), fork.Event()
        self.worker = fork.Process(target=self.make_batches, daemon=True)
        self.worker.start()

    def make_batches(self):
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
        batch = bytes(32 * 1024)
        self.has_gone.wait()
        while True:
            burn(self.batch_ns)  # blame: python-dataloader
            self.queue.put(batch)  # blame: python-dataloader

    def begin(self):
        say(kind="blame", pid=self.worker.pid)
        self.has_gone.set()

    def get_input(self):
        self.queue.get()  # victim: python-dataloader

    def words(self):
        return f" child={self.worker.pid}"

    def end(self):
        self.worker.kill()
        self.worker.join()


# What a child computes for so many nanoseconds.
BURN = "import sys, time\nend = time.thread_time_ns() + int(sys.argv[1])\nwhile time.thread_time_ns() < end: sum(range(500))"


class ChildPerStep:
    """Every step starts a process and waits for its end, or does without."""

    hits_all = False

    def __init__(self, job):
        self.job, self.ns = job, Shape(job.seed * 64).fault_ns

    def begin(self):
        pass

    def get_input(self):
        if self.job.healthy:
            return
        child = subprocess.Popen([sys.executable, "-S", "-c", BURN, str(self.ns)])
        say(kind="blame", pid=child.pid)
        child.wait()  # victim: child-per-step

    def words(self):
        return ""

    def end(self):
        pass


# What a child does that reads so many bytes at a time, and computes in between.
READ = """
import os, signal, sys, time
import ctypes; ctypes.CDLL(None).prctl(1, signal.SIGKILL)
size, ns = int(sys.argv[1]), int(sys.argv[2])
while True:
    left = size
    while left:
        data = os.read(0, left)
        if not data: sys.exit()
        left -= len(data)
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end: sum(range(500))
"""


class SlowReader:
    """What the job writes in every step is read by a process that computes for longer than a step, or hardly at all."""

    hits_all = False
    BYTES = 64 * 1024

    def __init__(self, job):
        shape = Shape(job.seed * 64)
        ns = 0 if job.healthy else shape.gpu_ns + shape.fault_ns
        command = [sys.executable, "-S", "-c", READ, str(self.BYTES), str(ns)]
        self.reader = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
        self.text = bytes(self.BYTES)

    def begin(self):
        say(kind="blame", pid=self.reader.pid)

    def get_input(self):
        self.reader.stdin.write(self.text)  # victim: slow-reader

    def words(self):
        return f" child={self.reader.pid}"

    def end(self):
        self.reader.kill()
        self.reader.wait()


FAULTS = {
    "gil-holder": GilHolder,
    "python-dataloader": SlowLoader,
    "child-per-step": ChildPerStep,
    "slow-reader": SlowReader,
}


class Job:
    """The process: its fault and its dispatch threads. The main thread is the first of them."""

    def __init__(self, arguments):
        self.seed, self.healthy = arguments.seed, arguments.healthy
        self.duration_ns = arguments.duration_ms * MS
        self.driver = ctypes.CDLL(arguments.driver)
        self.driver.fake_cuda_set(b"cuLaunchKernel", LAUNCH, word(2000), 0)
        self.driver.fake_cuda_set(b"cuStreamSynchronize", AWAIT, word(0), 0)
        self.driver.cuInit(0)
        self.fault = FAULTS[arguments.fault](self)
        self.dispatchers = [Dispatcher(self, index) for index in range(arguments.threads)]

    def is_over(self):
        return time.monotonic_ns() >= self.started_ns + self.duration_ns

    def run(self):
        self.started_ns = time.monotonic_ns()
        self.fault.begin()
        others = [threading.Thread(target=dispatcher.run) for dispatcher in self.dispatchers[1:]]
        for thread in others:
            thread.start()
        self.dispatchers[0].run()
        for thread in others:
            thread.join()
        elapsed_ns = time.monotonic_ns() - self.started_ns
        self.fault.end()
        for dispatcher in self.dispatchers:
            dispatcher.tell()
        say(kind="end", elapsed_ns=elapsed_ns, limit_hits=0)


def end_with_stdin():
    while os.read(0, 1):
        pass
    os._exit(0)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--fault", required=True, choices=FAULTS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--duration-ms", type=int, default=1000)
    parser.add_argument("--healthy", action="store_true")
    return parser.parse_args()


def main():
    job = Job(parse_arguments())
    print(f"ready {os.getpid()}{job.fault.words()}", flush=True)
    if sys.stdin.readline() != "go\n":
        os._exit(0)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    job.run()
    os._exit(0)


main()
