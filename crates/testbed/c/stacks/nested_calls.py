# SPDX-License-Identifier: Apache-2.0
"""Makes driver calls from a given number of Python frames, the module's included: `nested_calls.py FRAMES MILLISECONDS`."""

import ctypes
import sys
import time

CALL_NS = 50_000
FAKE_BURN = 1

driver = ctypes.CDLL("libcuda.so.1")


def call_until_the_end():
    synchronize = driver.cuStreamSynchronize
    while time.monotonic() < end:
        synchronize(1)


def nested(callee):
    """A function with code of its own, as most frames of a stack have."""
    namespace = {"callee": callee}
    exec(compile("def go_on():\n    callee()\n", "<nested>", "exec"), namespace)
    return namespace["go_on"]


frames, milliseconds = int(sys.argv[1]), int(sys.argv[2])
outermost = call_until_the_end
for _ in range(frames - 2):
    outermost = nested(outermost)
driver.cuInit(0)
driver.fake_cuda_set(b"cuStreamSynchronize", FAKE_BURN, ctypes.c_uint64(CALL_NS), 0)
print("ready", ctypes.CDLL(None).getpid(), flush=True)
if sys.stdin.readline():
    end = time.monotonic() + milliseconds / 1000
    outermost()
