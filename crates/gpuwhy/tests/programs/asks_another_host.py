"""Training that gets each batch from a server on another host, over a link that may lose packets.

The link and the server's host are made by the test: `ADDRESS` is where the server listens."""

import socket
import sys

import gpu

BATCH = 20_000

connection = socket.create_connection((sys.argv[3], int(sys.argv[4])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
gpu.open_gpu()
for _ in gpu.until_over():
    connection.sendall(b"next")
    missing = BATCH
    while missing:
        missing -= len(connection.recv(missing))  # here
    gpu.step()
