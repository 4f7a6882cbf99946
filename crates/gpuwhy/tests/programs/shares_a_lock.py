"""Training that takes a lock in each step which another process holds most of the time."""

import multiprocessing
import time

import gpu


def warm_caches(lock):
    with open("/proc/self/comm", "w") as comm:
        comm.write("cachewarmer")
    while True:
        with lock:
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass
        time.sleep(0.001)


fork = multiprocessing.get_context("fork")
lock = fork.Lock()
warmer = fork.Process(target=warm_caches, args=(lock,), daemon=True)
warmer.start()
gpu.open_gpu()
for _ in gpu.until_over():
    with lock:  # here
        pass
    gpu.step()
warmer.kill()
