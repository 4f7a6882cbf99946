"""Runs of which one has the GPU to itself, while the next ones get ready."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor


def in_turn(one_run: Callable, wanted: Iterable[tuple], ahead: int, minutes: float) -> Iterator[dict]:
    """What the runs give that begin in time, in their order. Each gets the file by whose lock it has the GPU."""
    deadline = time.monotonic() + 60 * minutes
    with ThreadPoolExecutor(1 + ahead) as jobs, tempfile.NamedTemporaryFile() as turn:
        in_time = lambda one: one_run(*one, turn.name) if time.monotonic() < deadline else None
        yield from filter(None, jobs.map(in_time, wanted))
