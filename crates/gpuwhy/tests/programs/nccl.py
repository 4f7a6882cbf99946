"""Ranks for the programs of this folder: the testbed's fake libnccl, whose path is the third argument of those that use it."""

import ctypes
import sys

import gpu

MEET = 10  # fake_cuda.h
FLOAT32, SUM = 7, 0

library = ctypes.CDLL(sys.argv[3])


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]


def unique_id():
    made = UniqueId()
    library.ncclGetUniqueId(ctypes.byref(made))
    return made


def join(job, rank, ranks):
    comm = ctypes.c_void_p()
    library.ncclCommInitRank(ctypes.byref(comm), ranks, job, rank)
    return comm


def all_reduce(comm, count):
    library.ncclAllReduce(None, None, ctypes.c_size_t(count), FLOAT32, SUM, comm, None)


def meet_in_waits(hook):
    """A wait for the GPU also calls this function: what was asked of several ranks is done when it returns."""
    gpu.driver.fake_cuda_hook(hook)
    gpu.driver.fake_cuda_set(b"cuStreamSynchronize", MEET, ctypes.c_uint64(0), 0)
