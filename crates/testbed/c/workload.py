# SPDX-License-Identifier: Apache-2.0
"""A Python program that uses the fake CUDA libraries: launches, copies, allocates and waits, step after step.

    workload.py --driver libcuda.so.1 --runtime libcudart.so.12 [--steps N] [--launches N] [--wait-start]

At the end it prints what it did, one JSON object a line, like the C workload.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import time

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
MIB = 1024 * 1024


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def word(value):
    return ctypes.c_uint64(value)


class Tally:
    """Times calls and counts them by function."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.rows = {}

    def call(self, op, inner, size, *arguments):
        function = getattr(self.runtime, op)
        start = time.monotonic_ns()
        ret = function(*arguments)
        end = time.monotonic_ns()
        fresh = {"calls": 0, "errors": 0, "bytes": 0, "wall_ns": 0, "first_ns": start}
        row = self.rows.setdefault((op, inner), fresh)
        row["calls"] += 1
        row["errors"] += ret != 0
        row["bytes"] += size
        row["wall_ns"] += end - start
        row["last_ns"] = end

    def print(self, elapsed_ns):
        who = {"pid": os.getpid(), "tid": threading.get_native_id(), "image": 0, "thread": 0, "device": 0}
        for (op, inner), row in self.rows.items():
            what = {"layer": "runtime", "op": op, "inner": inner, "abandoned": 0}
            print(json.dumps({"kind": "calls", **who, **what, **row}))
        calls = sum(row["calls"] for row in self.rows.values())
        end = {"kind": "end", "pid": os.getpid(), "image": 0, "threads": 1, "calls": calls, "elapsed_ns": elapsed_ns}
        print(json.dumps(end), flush=True)


def copy_batch(tally, memory, stream):
    tally.call("cudaMemcpyAsync", "cuMemcpyHtoDAsync", MIB, memory, word(0x10000), word(MIB), HOST_TO_DEVICE, stream)


def forward(tally, launches, stream):
    for _ in range(launches):
        shape = (Dim3(1, 1, 1), Dim3(256, 1, 1))
        tally.call("cudaLaunchKernel", "cuLaunchKernel", 0, word(0x5EED0001), *shape, word(0), word(0), stream)


def read_loss(tally, memory, stream):
    tally.call("cudaMemcpyAsync", "cuMemcpyDtoHAsync", 4, word(0x10000), memory, word(4), DEVICE_TO_HOST, stream)
    tally.call("cudaStreamSynchronize", "cuStreamSynchronize", 0, stream)


def train_step(tally, launches, stream):
    memory = ctypes.c_uint64()
    tally.call("cudaMalloc", "cuMemAlloc", MIB, ctypes.byref(memory), word(MIB))
    copy_batch(tally, memory, stream)
    forward(tally, launches, stream)
    read_loss(tally, memory, stream)
    tally.call("cudaFree", "cuMemFree", 0, memory)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True)
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--launches", type=int, default=10, help="launches per step")
    parser.add_argument("--wait-start", action="store_true")
    parser.add_argument("--wait-end", action="store_true")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    ctypes.CDLL(arguments.driver, mode=ctypes.RTLD_GLOBAL)
    tally = Tally(ctypes.CDLL(arguments.runtime))
    if arguments.wait_start:
        print(f"ready {os.getpid()}", flush=True)
        sys.stdin.readline()
    started = time.monotonic_ns()
    tally.call("cudaSetDevice", "cuCtxSetCurrent", 0, 0)
    stream = ctypes.c_uint64()
    tally.runtime.cudaStreamCreate(ctypes.byref(stream))
    for _ in range(arguments.steps):
        train_step(tally, arguments.launches, stream)
    tally.print(time.monotonic_ns() - started)
    if arguments.wait_end:
        sys.stdin.readline()


main()
