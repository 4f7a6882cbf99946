"""Runs a program when it is its turn to have the GPU, to itself until it ends. What takes long to import is there by then.

    takes_turn.py TURN PROGRAM [ARGUMENT...]
"""

import fcntl
import os
import runpy
import sys

import numpy  # noqa: F401
import torch  # noqa: F401

turn, program = sys.argv[1:3]
has_the_gpu = open(turn)
fcntl.flock(has_the_gpu, fcntl.LOCK_EX)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(program)
runpy.run_path(program, run_name="__main__")
