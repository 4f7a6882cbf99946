"""Training that makes a large buffer for each step: the kernel gives it new pages every time."""

import gpu

gpu.open_gpu()
for _ in gpu.until_over():
    buffer = bytearray(40 << 20)  # here
    del buffer
    gpu.step()
