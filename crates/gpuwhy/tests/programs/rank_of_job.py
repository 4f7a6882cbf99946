"""Some ranks of a job whose other ranks are started elsewhere. One of them becomes late.

    rank_of_job.py LIBCUDA SECONDS LIBNCCL JOB RANKS FIRST COUNT LATE_RANK LATE_MS LATE_FROM

JOB is a file with the job's unique id. Prints each rank and its process. Nobody is left after SECONDS.
"""

import itertools
import os
import signal
import sys
import time

import gpu
import nccl

JOB, RANKS, FIRST, COUNT, LATE_RANK, LATE_MS, LATE_FROM = sys.argv[4], *map(int, sys.argv[5:11])
GRADIENTS = 1 << 20


def compute():
    end = time.thread_time() + LATE_MS / 1000
    while time.thread_time() < end:  # computes
        sum(range(100))  # computes


def be_rank(rank, job):
    signal.alarm(int(gpu.SECONDS))
    gpu.open_gpu(20_000_000, rank - FIRST)
    nccl.meet_in_waits(nccl.library.fake_nccl_wait_for_all)
    world = nccl.join(job, rank, RANKS)
    for step in itertools.count():
        if rank == LATE_RANK and step >= LATE_FROM:
            compute()
        gpu.launch(2)
        nccl.all_reduce(world, GRADIENTS)
        gpu.wait()


def main():
    # Programs do much else before they meet. A tracer sees a library some milliseconds after it is loaded.
    time.sleep(1)
    with open(JOB, "rb") as file:
        job = nccl.UniqueId.from_buffer_copy(file.read())
    for rank in range(FIRST, FIRST + COUNT):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, job)
        print(rank, pid, flush=True)
    for _ in range(COUNT):
        os.wait()


main()
