"""Healthy: short steps with a nap after each."""

import time

import gpu

gpu.open_gpu()
for _ in gpu.until_over():
    gpu.step(3)
    time.sleep(0.004)
