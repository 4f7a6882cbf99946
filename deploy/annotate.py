"""Copy this into a program: annotate(step=12) puts it on the timeline of every gpuwhy that traces this machine.

It never waits, and does nothing where nobody traces. An empty value ends what was told before: annotate(phase="").
"""

import glob
import socket

_tracers = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


def annotate(folder="/run/gpuwhy", **labels):
    message = "\n".join(f"{key}={value}" for key, value in labels.items()).encode()
    for tracer in glob.glob(f"{folder}/*.sock"):
        try:
            _tracers.sendto(message, tracer)
        except OSError:
            pass  # it is over, or busy
