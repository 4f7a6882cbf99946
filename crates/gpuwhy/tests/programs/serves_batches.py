"""Sends a batch whenever it is asked for one, after as many milliseconds as it is told."""

import socket
import sys
import time

BATCH = bytes(20_000)

listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = listener.accept()
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while connection.recv(64):
    time.sleep(float(sys.argv[3]) / 1000)
    connection.sendall(BATCH)
