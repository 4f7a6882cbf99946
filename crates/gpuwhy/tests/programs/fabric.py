"""Two ranks that reduce their gradients. The first one is told of its RDMA device: a port fails, comes back, and fails again.

    fabric.py LIBCUDA STEPS LIBNCCL LIBIBVERBS

Prints the process of the first rank.
"""

import ctypes
import os
import struct
import sys
import threading
import time

import gpu
import nccl

STEPS, RANKS = int(sys.argv[2]), 2
# In which step there is news, and what. The last is of a kind that nobody knows yet.
NEWS = {20: 10, 30: 9, 40: 10, 50: 99}

verbs = ctypes.CDLL(sys.argv[4])


class Context(ctypes.Structure):
    _fields_ = [("events", ctypes.c_int)]


class Event(ctypes.Structure):
    _fields_ = [("element", ctypes.c_void_p), ("event_type", ctypes.c_int)]


def listen(context):
    event = Event()
    while verbs.ibv_get_async_event(ctypes.byref(context), ctypes.byref(event)) == 0:
        verbs.ibv_ack_async_event(ctypes.byref(event))


def be_rank(rank, job):
    gpu.open_gpu(1_000_000)
    nccl.meet_in_waits(nccl.library.fake_nccl_wait_for_all)
    world = nccl.join(job, rank, RANKS)
    source, news = os.pipe()
    listener = threading.Thread(target=listen, args=(Context(source),))
    if rank == 0:
        listener.start()
    for step in range(STEPS):
        gpu.launch(5)
        nccl.all_reduce(world, 1 << 20)
        gpu.driver.cuStreamSynchronize(None)
        if rank == 0 and step in NEWS:
            os.write(news, struct.pack("i", NEWS[step]))
        time.sleep(0.02)
    os.close(news)
    if rank == 0:
        listener.join()


def main():
    # A tracer sees a library some milliseconds after it is loaded.
    time.sleep(1)
    job = nccl.unique_id()
    for rank in range(RANKS):
        pid = os.fork()
        if pid == 0:
            be_rank(rank, job)
            os._exit(0)
        if rank == 0:
            print(pid, flush=True)
    for _ in range(RANKS):
        os.wait()


main()
