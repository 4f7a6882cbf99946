"""A job of several ranks that reduce their gradients in each step. One of them is late, or breaks the rules at some time.

    ranks.py LIBCUDA SECONDS LIBNCCL KIND RANKS [LATE_MS] [KERNEL_US] [LATE_FROM]

Nobody is left after SECONDS. Prints the process of the rank that is different.
"""

import itertools
import os
import signal
import sys
import tempfile
import threading
import time

import gpu
import nccl

KIND, RANKS = sys.argv[4], int(sys.argv[5])
LATE_S = float(sys.argv[6]) / 1000 if len(sys.argv) > 6 else 0
KERNEL_NS = 1000 * int(sys.argv[7]) if len(sys.argv) > 7 else 4_000_000
# The first step in which a rank is late.
LATE_FROM = int(sys.argv[8]) if len(sys.argv) > 8 else 0
GRADIENTS = 1 << 20
# The rank that is different, and in which step it breaks the rules.
RANK, STEP = 1, 60

synchronize = gpu.driver.cuStreamSynchronize


def train(world, shards):
    gpu.launch(5)
    nccl.all_reduce(world, GRADIENTS)
    synchronize(None)
    nccl.all_reduce(shards, GRADIENTS)
    synchronize(None)


def never_enter(world, shards):
    time.sleep(3600)  # never_entered


def ask_for_less(world, shards):
    nccl.all_reduce(world, GRADIENTS // 2)
    synchronize(None)  # mismatch


def begin_with_shards(world, shards):
    nccl.all_reduce(shards, GRADIENTS)
    synchronize(None)  # circle


def never_leave(world, shards):
    nccl.library.fake_nccl_break(world, 0)
    nccl.all_reduce(world, GRADIENTS)
    synchronize(None)  # never_left


def break_fabric(world, shards):
    nccl.library.fake_nccl_break(world, 1)
    nccl.all_reduce(world, GRADIENTS)
    synchronize(None)  # all_stuck


def give_up(world, shards):
    nccl.all_reduce(world, GRADIENTS)
    nccl.library.ncclCommAbort(world)
    time.sleep(3600)  # aborts


def start_anew(world, job, rank):
    """As a job does after a failure: what was in flight never comes about."""
    nccl.all_reduce(world, GRADIENTS)
    nccl.library.ncclCommAbort(world)
    return nccl.join(job, rank, RANKS)


def compute():
    end = time.thread_time() + LATE_S
    while time.thread_time() < end:  # computes
        sum(range(100))  # computes


def sleep():
    time.sleep(LATE_S)  # sleeps


def write():
    # Nobody can open the file any more: to close it gives its blocks back, which waits for the disk as well.
    end = time.monotonic() + LATE_S
    with tempfile.TemporaryFile(dir=".") as file:  # writes
        while time.monotonic() < end:
            file.write(b"x" * 65536)
            file.flush()
            os.fsync(file.fileno())  # writes


class Holder(threading.Thread):
    """Has a lock for a while, whenever it is asked to."""

    def __init__(self):
        super().__init__(daemon=True)
        self.lock, self.wanted, self.taken = threading.Lock(), threading.Semaphore(0), threading.Semaphore(0)

    def run(self):
        while True:
            self.wanted.acquire()
            with self.lock:
                self.taken.release()
                time.sleep(LATE_S)  # locks

    def wait(self):
        self.wanted.release()
        self.taken.acquire()
        with self.lock:  # locks
            pass


def wait_for_lock():
    global holder
    if holder is None:
        holder = Holder()
        holder.start()
    holder.wait()


holder = None
LATE = {"computes": compute, "sleeps": sleep, "writes": write, "locks": wait_for_lock}
BREAKS = {
    "never_entered": never_enter,
    "mismatch": ask_for_less,
    "circle": begin_with_shards,
    "never_left": never_leave,
    "all_stuck": break_fabric,
    "aborts": give_up,
}


def be_rank(rank, jobs):
    signal.alarm(int(gpu.SECONDS))
    gpu.open_gpu(KERNEL_NS)
    nccl.meet_in_waits(nccl.library.fake_nccl_wait_for_all)
    world, shards = (nccl.join(job, rank, RANKS) for job in jobs[:2])
    for step in itertools.count():
        if step == STEP and KIND == "starts_anew":
            world = start_anew(world, jobs[2], rank)
        if rank == RANK and step == STEP and KIND in BREAKS:
            BREAKS[KIND](world, shards)
            continue
        if rank == RANK and KIND in LATE and step >= LATE_FROM:
            LATE[KIND]()
        train(world, shards)


def main():
    # Programs do much else before they meet. A tracer sees a library some milliseconds after it is loaded.
    time.sleep(1)
    jobs = [nccl.unique_id() for _ in range(3)]
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, jobs)
        if rank == RANK:
            print(pid, flush=True)
    for _ in range(RANKS):
        os.wait()


main()
