# SPDX-License-Identifier: Apache-2.0
"""Calls `witness` with Python and C++ on the stack in turn: `witness_mixed.py [--check] COUNT`."""

import ctypes
import threading

from witness_record import lib, load, record, run

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_ulong, ctypes.c_int)

mixed = load("libmixed.so")
mixed.mixed_witness.argtypes = [ctypes.c_ulong, ctypes.c_int]
mixed.mixed_call_back.argtypes = [CALLBACK, ctypes.c_ulong, ctypes.c_int]
mixed.mixed_call_back_after_exception.argtypes = [CALLBACK, ctypes.c_ulong, ctypes.c_int]


def in_python_under_cpp(sequence):
    call_back(sequence, 0)


def in_python_deep_under_cpp(sequence):
    call_back(sequence, 1 + sequence % 5)


def call_back(sequence, depth):
    mixed.mixed_call_back(CALLBACK(from_cpp), sequence, depth)


def from_cpp(sequence, depth):
    if depth == 0:
        lib.witness(record(sequence))
    elif depth % 2:
        mixed.mixed_call_back_after_exception(CALLBACK(from_cpp), sequence, depth - 1)
    else:
        step_in_between(sequence, depth)


def step_in_between(sequence, depth):
    for _ in range(1):
        call_back(sequence, depth - 1)


def in_cpp_under_python(sequence):
    """The innermost frames are C++, also with --check."""
    mixed.mixed_witness(record(sequence), sequence % 4)


def in_cpp_under_python_under_cpp(sequence):
    def enter_again(inner_sequence, depth):
        mixed.mixed_witness(record(inner_sequence), depth)

    mixed.mixed_call_back(CALLBACK(enter_again), sequence, sequence % 4)


def in_thread(sequence):
    thread = threading.Thread(target=in_python_deep_under_cpp, args=(sequence,))
    thread.start()
    thread.join()


SITUATIONS = [
    in_python_under_cpp,
    in_python_deep_under_cpp,
    in_cpp_under_python,
    in_cpp_under_python_under_cpp,
    in_thread,
]

if __name__ == "__main__":
    run(SITUATIONS)
