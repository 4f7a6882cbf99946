"""Training that collects garbage after each step, with many objects alive."""

import gc

import gpu

gpu.open_gpu()
alive = [{"key": number, "value": [number]} for number in range(200_000)]
for _ in gpu.until_over():
    gc.collect()  # here
    gpu.step()
