"""Training that takes a lock which another thread holds for long, and waits shortly at ever other depths of its stack."""

import os
import queue
import threading
import time
import zlib

import gpu

DEPTHS = 60
table = os.urandom(1 << 16)
lock = threading.Lock()
asked, answered = queue.SimpleQueue(), queue.SimpleQueue()


def rebuild():
    while True:
        with lock:
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                zlib.compress(table)
        time.sleep(0.1)


def answer():
    while True:
        answered.put(asked.get())


def ask(depth):
    if depth:
        # What C calls has a place of its own on the stack.
        max((0,), key=lambda _: ask(depth - 1))
    else:
        asked.put(True)
        answered.get()
    return 0


gpu.open_gpu()
threading.Thread(target=answer, daemon=True).start()
threading.Thread(target=rebuild, daemon=True).start()
questions = 0
for _ in gpu.until_over():
    with lock:  # here
        pass
    for _ in range(20):
        ask(questions % DEPTHS)
        questions += 1
    gpu.step()
