"""Waits for what must come."""

import time

PATIENCE_S = 90


def until(what: str, is_so) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.3)
