"""A healthy server that takes one connection and listens no longer: who connected thinks between requests."""

import multiprocessing
import socket
import time

import gpu


def ask(address):
    time.sleep(0.05)
    with socket.create_connection(address) as connection:
        while True:
            connection.sendall(b"question")
            connection.recv(64)
            time.sleep(0.05)


with socket.create_server(("127.0.0.1", 0)) as listener:
    client = multiprocessing.get_context("fork").Process(target=ask, args=(listener.getsockname(),), daemon=True)
    client.start()
    connection, _ = listener.accept()
gpu.open_gpu()
for _ in gpu.until_over():
    connection.recv(64)
    gpu.step()
    connection.sendall(b"answer")
client.kill()
