"""A healthy kernel of a notebook: its front end sends cells through a pipe, and the user thinks in between."""

import multiprocessing
import time

import gpu


def use(front_end):
    while True:
        time.sleep(0.05)  # thinks
        front_end.send("cell")
        front_end.recv()


kernel, front_end = multiprocessing.Pipe()
user = multiprocessing.get_context("fork").Process(target=use, args=(front_end,), daemon=True)
user.start()
gpu.open_gpu()
for _ in gpu.until_over():
    kernel.recv()
    gpu.step()
    kernel.send("result")
user.kill()
