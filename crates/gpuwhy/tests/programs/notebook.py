"""Healthy: a cell now and then, with somebody who thinks in between."""

import time

import gpu

gpu.open_gpu()
for _ in gpu.until_over():
    gpu.step(200)
    time.sleep(0.7)
