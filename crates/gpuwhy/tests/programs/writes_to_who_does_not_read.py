"""Gives the GPU work and sends two small messages at a time to somebody who reads late, on this host. Prints how often TCP
has sent something again."""

import socket
import time

import gpu

MOMENT_S = 0.06


def sent_again() -> int:
    with open("/proc/net/netstat") as file:
        lines = file.read().splitlines()
    names, values = next(pair for pair in zip(lines, lines[1:]) if pair[0].startswith("TcpExt:"))
    return int(dict(zip(names.split(), values.split()))["TCPLossProbes"])


listener = socket.create_server(("127.0.0.1", 0))
ours = socket.create_connection(listener.getsockname())
ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
theirs, _ = listener.accept()
theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
gpu.open_gpu()
before = sent_again()
for _ in gpu.until_over():
    gpu.step()
    ours.send(b"x" * 100)
    ours.send(b"y" * 100)
    theirs.recv(1000)
    theirs.send(b"z")
    ours.recv(10)
    ours.send(b"x" * 100)
    ours.send(b"y" * 100)
    time.sleep(MOMENT_S)
print(sent_again() - before)
