"""Many small kernels a step, more than can be watched one by one, then a pause for the GPU. Says how long it was idle,
and how long the program waited for a CPU, as shares of the time."""

import itertools
import json
import time

import gpu


def prepare(seconds):
    end = time.monotonic() + seconds
    all(time.monotonic() < end for _ in itertools.repeat(None))  # here


gpu.open_gpu(5_000)
working_ns = pausing_ns = 0
for _ in gpu.until_over():
    began_ns = time.monotonic_ns()
    gpu.step(1_000)
    done_ns = time.monotonic_ns()
    prepare(0.005)
    working_ns += done_ns - began_ns
    pausing_ns += time.monotonic_ns() - done_ns
all_ns = working_ns + pausing_ns
with open("/proc/self/schedstat") as clocks:
    queued_ns = int(clocks.read().split()[1])
print(json.dumps({"idle": pausing_ns / all_ns, "queued": queued_ns / all_ns}))
