"""Training that keeps a tensor of every fourth step."""

import gpu

gpu.open_gpu()
weights = [gpu.allocate(20 << 20) for _ in range(20)]
kept = []
for number in gpu.until_over():
    gpu.step()
    if number % 4 == 0:
        kept.append(gpu.allocate(96 << 20))  # here
