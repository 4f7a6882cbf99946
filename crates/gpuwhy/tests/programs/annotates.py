"""Tells its steps to whoever traces it. The folder of deploy/annotate.py and that of the sockets come last."""

import sys
import time

import gpu

sys.path.insert(0, sys.argv[3])
from annotate import annotate

gpu.open_gpu()
gpu.step()
time.sleep(1)  # until the tracer has seen a call of it
for number in gpu.until_over():
    annotate(sys.argv[4], step=number)
    gpu.step()
    if number == 7:
        time.sleep(0.5)
annotate(sys.argv[4], step="", note="all = done")
