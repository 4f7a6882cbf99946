"""Stacks to walk: `frames.py SCENARIO` arranges one, writes down what Python itself knows of it, and waits.

The record is lines: `thread ID`, then one `frame NAME FILE LINE` for each frame from the innermost outwards, separated
by tabs, then `end`. A frame that tells and waits does both on one line, so that its own line is right as well.
"""
import asyncio
import ctypes
import functools
import os
import sys
import threading

DEEP = 200


def frames_of(frame):
    lines = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        lines.append(f"frame\t{name}\t{code.co_filename}\t{frame.f_lineno}\n")
        frame = frame.f_back
    return "".join(lines)


def write(text):
    os.write(1, text.encode())


def tell(frame):
    write(f"thread\t{threading.get_ident()}\n{frames_of(frame)}end\n")


def wait():
    tell(sys._getframe()), os.read(0, 1)


def plain():
    wait()


def loudly(function):
    @functools.wraps(function)
    def around(*arguments):
        return function(
            *arguments,
        )

    return around


@loudly
@loudly
def decorated():
    wait()


def take(*arguments):
    return arguments


def multi_line_call():
    take(
        1,
        wait(),
        take(
            2,
            3,
        ),
    )


def in_a_comprehension():
    return [
        wait()
        for _ in range(1)
    ]


def in_a_generator_expression():
    return sum(
        wait() or 0 for _ in range(1)
    )


def yields():
    yield 1
    wait()
    yield 2


def delegates():
    yield 0
    yield from yields()


def generator():
    for _ in delegates():
        pass


async def innermost():
    await asyncio.sleep(0)
    wait()


class Around:
    async def __aenter__(self):
        await innermost()

    async def __aexit__(self, *_):
        pass


async def outermost():
    async with Around():
        pass


def coroutine():
    asyncio.run(outermost())


def recursion(depth=DEEP):
    if depth == 0:
        wait()
    else:
        recursion(depth - 1)


def entered_by_sorted(_):
    wait()
    return 0


def entered_by_reduce(_left, _right):
    return sorted([1], key=entered_by_sorted)


def entered_by_ctypes(_):
    functools.reduce(entered_by_reduce, [1, 2])
    return 0


def callbacks():
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    prototype(entered_by_ctypes)(7)


def non_ascii():
    """Names with characters of one, two and four bytes. An emoji is no identifier, so it comes in by renaming."""
    latin, wide = (define(name) for name in ("größe", "測定"))
    widest = define("other")
    widest.__code__ = widest.__code__.replace(co_name="weit_😀", **qualified("weit_😀"))
    latin(lambda: wide(lambda: widest(wait)))


def define(name):
    namespace = {}
    exec(compile(f"\ndef {name}(function):\n    function()\n", f"/ordner/{name}.py", "exec"), namespace)
    return namespace[name]


def qualified(name):
    return {"co_qualname": name} if sys.version_info >= (3, 11) else {}


def exec_code():
    source = "import sys\n\n\nclass A:\n    def method(self):\n        function()\n\n\nA().method()\n"
    exec(source, {"function": wait})


class Shape:
    def __init__(self, is_last):
        if is_last:
            wait()

    @property
    def area(self):
        return (lambda: wait())()

    def __getattr__(self, name):
        return self.area


def initializer():
    # The class is called often enough to get an instruction of its own.
    for index in range(1000):
        Shape(
            index == 999
        )


def attributes():
    try:
        Shape(False).missing
    finally:
        pass


def warm(is_last):
    def closure(value):
        if is_last:
            wait()
        return value

    for item in (closure(1),
                 closure(2)):
        take(item)


def warmed_up():
    for index in range(2000):
        warm(index == 1999)


def far_away():
    # Lines and instructions further apart than one entry of a table can say.
    lines = ["def far(wait):", "    x = 0"]
    lines += ["    x = x + 1"] * 400 + [""] * 1000 + ["    wait()"] + ["    x = x + 1"] * 300
    namespace = {}
    exec(compile("\n".join(lines), "far.py", "exec"), namespace)
    namespace["far"](wait)


def spin():
    while True: pass


def block(lock):
    with lock:
        pass


def stays_in(thread, function):
    frame = sys._current_frames().get(thread.ident)
    return frame and frame.f_code is function.__code__ and frame.f_lineno == function.__code__.co_firstlineno + 1


def threads():
    lock = threading.Lock()
    lock.acquire()
    for function, arguments in ((spin, ()), (block, (lock,))):
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        while not stays_in(thread, function):
            threading.Event().wait(0.001)
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            write(f"thread\t{ident}\n{frames_of(frame)}end\n")
    wait()


INSIDE = """
import os, sys
def inside():
    write(), os.read(0, 1)
def write():
    lines = []
    frame = sys._getframe(1)
    while frame is not None:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        lines.append(f"frame\\t{name}\\t{frame.f_code.co_filename}\\t{frame.f_lineno}\\n")
        frame = frame.f_back
    os.write(1, (THREAD + "".join(lines) + OUTSIDE).encode())
inside()
"""


def interpreters():
    module = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
    names = "THREAD, OUTSIDE = "
    ident = f"thread\t{threading.get_ident()}\n"
    module.create()
    other = module.create()
    module.run_string(other, f"{names}{ident!r}, {frames_of(sys._getframe()) + 'end' + chr(10)!r}\n{INSIDE}")


globals()[sys.argv[1]]()
