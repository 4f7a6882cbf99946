# SPDX-License-Identifier: Apache-2.0
"""Calls `witness` from as many situations of Python as the argument says: `witness.py [--check] COUNT`."""

import asyncio
import contextlib
import ctypes
import functools
import json
import re
import signal
import threading

from witness_record import lib, record, run


def in_function(sequence):
    lib.witness(record(sequence))


def in_recursion(sequence):
    recurse(sequence, sequence * 7 % 60)


def recurse(sequence, depth):
    if depth == 0:
        lib.witness(record(sequence))
        return 0
    return 1 + recurse(sequence, depth - 1)


def in_mutual_recursion(sequence):
    def even(depth):
        return odd(depth - 1) if depth else lib.witness(record(sequence))

    def odd(depth):
        if depth <= 0:
            return lib.witness(record(sequence))
        return even(depth - 1)

    even(sequence % 40)


def in_generator(sequence):
    def numbers(depth):
        if depth == 0:
            yield lib.witness(record(sequence))
        yield from numbers(depth - 1) if depth > 0 else ()

    for _ in numbers(sequence % 15):
        pass


def in_generator_expression(sequence):
    list(lib.witness(record(sequence)) for _ in range(1))


def in_send(sequence):
    def receiver():
        received = yield
        lib.witness(record(received))
        yield

    generator = receiver()
    next(generator)
    generator.send(sequence)
    generator.close()


def in_coroutine(sequence):
    async def inner(depth):
        if depth > 0:
            return await inner(depth - 1)
        await asyncio.sleep(0)
        lib.witness(record(sequence))

    asyncio.run(inner(sequence % 12))


def in_tasks(sequence):
    async def quiet():
        await asyncio.sleep(0)

    async def loud():
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(lambda: lib.witness(record(sequence)))

    async def all_of_them():
        await asyncio.gather(quiet(), loud(), quiet())

    asyncio.run(all_of_them())


def in_async_generator(sequence):
    async def numbers():
        for number in range(3):
            await asyncio.sleep(0)
            if number == 1:
                lib.witness(record(sequence))
            yield number

    async def use():
        return [number async for number in numbers()]

    asyncio.run(use())


def in_thread(sequence):
    thread = threading.Thread(target=recurse, args=(sequence, sequence % 20))
    thread.start()
    thread.join()


def in_busy_threads(sequence):
    """Other threads run Python while the call is under way."""
    is_over = threading.Event()

    def idle():
        while not is_over.wait(0.0002):
            sum(range(100))

    threads = [threading.Thread(target=idle) for _ in range(2)]
    for thread in threads:
        thread.start()
    lib.witness(record(sequence))
    is_over.set()
    for thread in threads:
        thread.join()


def in_sort_key(sequence):
    sorted([1], key=lambda number: lib.witness(record(sequence)) or number)


def in_comparison(sequence):
    class Ordered:
        def __lt__(self, other):
            lib.witness(record(sequence))
            return True

    sorted([Ordered(), Ordered()])


def in_reduce(sequence):
    functools.reduce(lambda left, right: lib.witness(record(sequence)) or right, [1, 2])


def in_map_and_filter(sequence):
    def is_wanted(number):
        return number == 1 and lib.witness(record(sequence)) is None

    list(map(str, filter(is_wanted, range(3))))


def in_c_callback(sequence):
    """Python, C, Python, C, and so on."""
    signature = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)

    def back_in_python(depth):
        if depth == 0:
            lib.witness(record(sequence))
            return 0
        return signature(back_in_python)(depth - 1) + 1

    signature(back_in_python)(sequence % 6)


def in_qsort_of_c(sequence):
    is_reported = []
    numbers = (ctypes.c_int * 5)(5, 3, 1, 4, 2)

    def compare(left, right):
        if not is_reported:
            is_reported.append(lib.witness(record(sequence)))
        return left[0] - right[0]

    pointer = ctypes.POINTER(ctypes.c_int)
    signature = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)
    libc = ctypes.CDLL(None)
    libc.qsort(numbers, ctypes.c_size_t(5), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int)), signature(compare))


class Model:
    def __init__(self, sequence, where):
        self.sequence, self.where = sequence, where
        if where == "init":
            lib.witness(record(sequence))

    def forward(self):
        return self.layers[0](self) if self.where == "call" else lib.witness(record(self.sequence))

    def __call__(self, other):
        lib.witness(record(other.sequence))

    @property
    def layers(self):
        if self.where == "property":
            lib.witness(record(self.sequence))
        return [Model(0, "callee")]

    @classmethod
    def build(cls, sequence):
        lib.witness(record(sequence))

    @staticmethod
    def helper(sequence):
        lib.witness(record(sequence))

    def __getattr__(self, name):
        return lib.witness(record(self.sequence))

    def __del__(self):
        if self.where == "del":
            lib.witness(record(self.sequence))

    class Inner:
        def method(self, sequence):
            lib.witness(record(sequence))


class Deeper(Model):
    def forward(self):
        return super().forward()


def in_method(sequence):
    Deeper(sequence, "forward").forward()


def in_constructor(sequence):
    Deeper(sequence, "init")


def in_call_operator(sequence):
    Deeper(sequence, "call").forward()


def in_property(sequence):
    Model(sequence, "property").layers


def in_class_method(sequence):
    (Model.build if sequence % 2 else Model.helper)(sequence)


def in_nested_class(sequence):
    Model.Inner().method(sequence)


def in_missing_attribute(sequence):
    Model(sequence, "getattr").no_such_thing


def in_finalizer(sequence):
    Model(sequence, "del")


def in_lambda(sequence):
    (lambda outer: (lambda inner: lib.witness(record(inner)))(outer))(sequence)


def in_comprehensions(sequence):
    [lib.witness(record(row)) for row in [sequence] if row == sequence]


def in_nested_comprehensions(sequence):
    {column: [lib.witness(record(row)) for row in [sequence]] for column in {"only"}}


def in_call_over_lines(sequence):
    return max(
        len("first argument"),
        take_many(
            "one",
            sequence,
            more="three",
        ),
        0,
    )


def take_many(
    first,
    second,
    *others,
    more=None,
):
    value = lib.witness(record(
        second,
    ))
    return 0 if value is None else (
        len(first)
        + len(more)
    )


def in_chain_over_lines(sequence):
    return (
        Chain(sequence)
        .link()
        .link()
        .end()
    )


class Chain:
    def __init__(self, sequence):
        self.sequence = sequence

    def link(self):
        return self

    def end(self):
        if (
            self.sequence >= 0
            and lib.witness(record(self.sequence)) is None
        ):
            return self


def größe_prüfen(sequence):
    class Größe:
        def 测量(self):
            lib.witness(record(sequence))

    Größe().测量()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments, **named):
        return function(*arguments, **named)

    return wrapper


@decorated
@decorated
def in_decorated_function(sequence):
    lib.witness(record(sequence))


def in_cache(sequence):
    @functools.lru_cache(maxsize=None)
    def compute(number):
        return lib.witness(record(number))

    functools.partial(compute, sequence)()


def in_context_manager(sequence):
    @contextlib.contextmanager
    def managed():
        yield
        lib.witness(record(sequence))

    with managed():
        pass


def in_exception_handler(sequence):
    try:
        raise_deep_down(sequence % 9)
    except ValueError:
        lib.witness(record(sequence))


def in_finally(sequence):
    with contextlib.suppress(ValueError):
        try:
            raise_deep_down(sequence % 9)
        finally:
            lib.witness(record(sequence))


def raise_deep_down(depth):
    if depth == 0:
        raise ValueError("deep down")
    raise_deep_down(depth - 1)


def in_generated_code(sequence):
    """Lines far apart: their distance takes more than a byte in every encoding."""
    lines = [
        "def generated(sequence):",
        "    if sequence >= 0:" + "\n" * (100 + sequence % 900),
        "        lib.witness(record(sequence))",
        "generated(sequence)",
    ]
    code = compile("\n".join(lines), "<generated>", "exec")
    exec(code, {"lib": lib, "record": record, "sequence": sequence})


def in_eval(sequence):
    eval("[lib.witness(record(sequence))]", {"lib": lib, "record": record, "sequence": sequence})


def in_json(sequence):
    json.dumps(object(), default=lambda value: lib.witness(record(sequence)))


def in_regular_expression(sequence):
    re.sub("b", lambda match: lib.witness(record(sequence)) or "", "abc")


def in_signal_handler(sequence):
    def handle(number, frame):
        lib.witness(record(sequence))

    signal.signal(signal.SIGUSR1, handle)
    signal.raise_signal(signal.SIGUSR1)


def in_loop(sequence):
    total = 0
    for number in range(3):
        while total < number:
            total += 1
            if total == 2:
                lib.witness(record(sequence))
    return total


def in_long_function(sequence):
    values = [
        1,
        2,
        3,
    ]; lib.witness(record(sequence)); values.append(4)  # fmt: skip
    return values


SITUATIONS = [
    in_function,
    in_recursion,
    in_mutual_recursion,
    in_generator,
    in_generator_expression,
    in_send,
    in_coroutine,
    in_tasks,
    in_async_generator,
    in_thread,
    in_busy_threads,
    in_sort_key,
    in_comparison,
    in_reduce,
    in_map_and_filter,
    in_c_callback,
    in_qsort_of_c,
    in_method,
    in_constructor,
    in_call_operator,
    in_property,
    in_class_method,
    in_nested_class,
    in_missing_attribute,
    in_finalizer,
    in_lambda,
    in_comprehensions,
    in_nested_comprehensions,
    in_call_over_lines,
    in_chain_over_lines,
    größe_prüfen,
    in_decorated_function,
    in_cache,
    in_context_manager,
    in_exception_handler,
    in_finally,
    in_generated_code,
    in_eval,
    in_json,
    in_regular_expression,
    in_signal_handler,
    in_loop,
    in_long_function,
]

if __name__ == "__main__":
    run(SITUATIONS)
