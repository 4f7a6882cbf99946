# SPDX-License-Identifier: Apache-2.0
"""What the Python witnesses share: the record of a stack as the interpreter sees it, and the run over all situations.

WITNESS_PYTHON_LOG names the file to write, one JSON object a line: the sequence number, the thread, and for each frame
from the innermost outwards its name (the qualified one where there is such a thing), its file and its line.

A situation calls `lib.witness(record(sequence))`: both calls begin on the same line of the same frame, so that every
line that is written down is the one that executes while `witness` runs.
"""

import ctypes
import json
import os
import sys
import threading

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Library:
    """What situations call: the library's function, or with --check a stand-in that looks at its own callers."""

    witness = None


lib = Library()
_records = {}
_log = None


def frames_from(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append([name, code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def record(sequence):
    """Writes down who calls, and returns the sequence number."""
    frames = frames_from(sys._getframe(1))
    line = {"sequence": sequence, "tid": threading.get_native_id(), "frames": frames}
    os.write(_log, json.dumps(line).encode() + b"\n")
    _records[sequence] = frames
    return sequence


def compare(sequence):
    """Stands in for `witness`: what is on the stack during the call must be what was written down before it."""
    frames = frames_from(sys._getframe(1))
    if frames != _records[sequence]:
        print(f"{sequence}: recorded {_records[sequence]}\nbut during the call: {frames}", file=sys.stderr)
        os._exit(3)


def go_on(situation, sequence, way):
    """Every number comes another way, through four kinds of calls."""
    if way == 0:
        situation(sequence)
    elif way % 4 == 0:
        go_on(situation, sequence, way // 4)
    elif way % 4 == 1:
        list(map(lambda rest: go_on(situation, sequence, rest), [way // 4]))
    elif way % 4 == 2:
        [go_on(situation, sequence, rest) for rest in [way // 4]]
    else:
        go_on(
            situation,
            sequence,
            way // 4,
        )


def load(name):
    return ctypes.CDLL(os.path.join(FOLDER, name))


def run(situations):
    """The program: `[--check] COUNT`."""
    global _log
    arguments = sys.argv[1:]
    is_check = "--check" in arguments
    numbers = [int(word) for word in arguments if word.isdigit()]
    if len(numbers) != 1 or "WITNESS_PYTHON_LOG" not in os.environ:
        sys.exit(f"usage: WITNESS_LOG=PATH WITNESS_PYTHON_LOG=PATH {sys.argv[0]} [--check] COUNT")
    _log = os.open(os.environ["WITNESS_PYTHON_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    library = load("libwitness.so")
    library.witness.argtypes, library.witness.restype = [ctypes.c_ulong], None
    lib.witness = ctypes.CFUNCTYPE(None, ctypes.c_ulong)(compare) if is_check else library.witness
    library.witness_start()
    for sequence in range(numbers[0]):
        go_on(situations[sequence % len(situations)], sequence, sequence)
        if sequence not in _records:
            sys.exit(f"situation {sequence} did not call witness")
    library.witness_finish()
