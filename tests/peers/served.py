"""A gpuwhy that serves a trace, for as long as a test needs it."""

import os
import queue
import re
import signal
import subprocess
import threading
from contextlib import contextmanager

GPUWHY = os.environ["GPUWHY"]
TRACE = os.environ["GPUWHY_TRACE"]


def stdio_arguments(*more):
    """The command line of an MCP server on standard input and output."""
    return ["mcp", "--db", TRACE, *more]


@contextmanager
def server(*more, trace=TRACE):
    """Serves MCP and the HTTP API on a free port; gives its address, without a path, and its process."""
    log = ["--audit-log", "/dev/null"]
    command = [GPUWHY, "mcp", "--db", trace, "--http", "127.0.0.1:0", *log, *more]
    if "--tls-cert" not in more:
        command.append("--insecure-no-tls")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield address_of(process), process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the server does not end when it is told to") from None
        assert code == 0, f"the server ended with {code}"


def address_of(process):
    lines = queue.Queue()

    def read():
        for line in process.stderr:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    seen = []
    while (line := lines.get(timeout=20)) is not None:
        seen.append(line)
        if found := re.search(r"serving (https?://\S+?)/mcp", line):
            return found[1]
    raise AssertionError("no server: " + "".join(seen))
