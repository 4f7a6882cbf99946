"""Ranks for the programs of this folder: the testbed's fake libnccl, whose path is the third argument of those that use it."""

import ctypes
import sys

import gpu

HOOK, MEET = 6, 10  # fake_cuda.h
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


def capture(ask):
    """A graph of what this function asks for, ready to be launched. From now on, waits for the GPU wait for other ranks."""
    driver, graph, executable = gpu.driver, ctypes.c_uint64(), ctypes.c_uint64()
    meet_in_waits(library.fake_nccl_in_graph)
    for function in (b"cuStreamBeginCapture", b"cuStreamEndCapture", b"cuGraphLaunch"):
        driver.fake_cuda_set(function, HOOK, ctypes.c_uint64(0), 0)
    driver.cuStreamBeginCapture_v2(None, 0)
    ask()
    driver.cuStreamEndCapture(None, ctypes.byref(graph))
    driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0))
    driver.cuGraphDestroy(graph)
    return executable
