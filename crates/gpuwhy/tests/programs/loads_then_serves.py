"""Healthy: loads weights steadily for a third of its time, then works when somebody asks."""

import time

import gpu

gpu.open_gpu()
loaded = time.monotonic() + gpu.SECONDS / 3
weights = []
for _ in gpu.until_over():
    if time.monotonic() < loaded:
        weights.append(gpu.allocate(8 << 20))
        gpu.step(1)
    else:
        gpu.step()
    time.sleep(0.005)
