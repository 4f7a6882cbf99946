"""A GPU for the programs of this folder: the testbed's fake driver, whose path is the first argument of each of them."""

import ctypes
import sys
import time

LAUNCH, AWAIT = 7, 8  # fake_cuda.h
MS = 1_000_000

driver = ctypes.CDLL(sys.argv[1])
SECONDS = float(sys.argv[2])


def _word(value):
    return ctypes.c_uint64(value)


def open_gpu(kernel_ns=200_000, device=0):
    """For the calling thread. Each kernel takes this long."""
    context = ctypes.c_void_p()
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
    driver.fake_cuda_set(b"cuLaunchKernel", LAUNCH, _word(2000), 0)
    driver.fake_cuda_set(b"cuStreamSynchronize", AWAIT, _word(0), 0)
    driver.fake_cuda_kernel_ns(_word(kernel_ns))


def launch(launches):
    for _ in range(launches):
        driver.cuLaunchKernel(_word(0x5EED0001), 1, 1, 1, 256, 1, 1, 0, _word(0), _word(0), _word(0))


def wait():
    driver.cuStreamSynchronize(_word(0))


def step(launches=20):
    """Some kernels, and a wait for all of them."""
    launch(launches)
    wait()


def allocate(size):
    address = ctypes.c_uint64()
    if driver.cuMemAlloc_v2(ctypes.byref(address), _word(size)):
        raise MemoryError
    return address.value


def until_over():
    """Counts steps until the time is over."""
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        yield number
        number += 1
