"""A job of several ranks that capture their operations in a graph once and launch it in each step. The second one may be late.

    graph_ranks.py LIBCUDA STEPS LIBNCCL RANKS LATE_MS
"""

import os
import sys
import time

import gpu
import nccl

STEPS, RANKS, LATE_S = int(sys.argv[2]), int(sys.argv[4]), float(sys.argv[5]) / 1000
GRADIENTS = 1 << 20


def be_rank(rank, job):
    gpu.open_gpu(1_000_000)
    world = nccl.join(job, rank, RANKS)
    nccl.all_reduce(world, 1)

    def ask():
        nccl.all_reduce(world, GRADIENTS)
        nccl.all_reduce(world, GRADIENTS)

    executable = nccl.capture(ask)
    for _ in range(STEPS):
        if rank == 1:
            time.sleep(LATE_S)  # late
        gpu.launch(5)
        gpu.driver.cuGraphLaunch(executable, None)
        gpu.driver.cuStreamSynchronize(None)


def main():
    # A tracer sees a library some milliseconds after it is loaded.
    time.sleep(1)
    job = nccl.unique_id()
    for rank in range(RANKS):
        if os.fork() == 0:
            be_rank(rank, job)
            os._exit(0)
    for _ in range(RANKS):
        os.wait()


main()
