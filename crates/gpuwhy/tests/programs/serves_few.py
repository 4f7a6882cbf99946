"""A healthy blocking server: its only client computes between requests."""

import multiprocessing
import socket
import time

import gpu


def ask(address):
    while True:
        with socket.create_connection(address) as connection:
            connection.sendall(b"question")
            connection.recv(64)
        end = time.monotonic() + 0.03
        while time.monotonic() < end:
            sum(range(200))


listener = socket.create_server(("127.0.0.1", 0))
client = multiprocessing.get_context("fork").Process(target=ask, args=(listener.getsockname(),), daemon=True)
client.start()
gpu.open_gpu()
for _ in gpu.until_over():
    connection, _ = listener.accept()
    with connection:
        connection.recv(64)
        gpu.step()
        connection.sendall(b"answer")
client.kill()
