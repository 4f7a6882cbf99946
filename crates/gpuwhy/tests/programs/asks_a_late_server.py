"""Training that reports each step to a server, which sleeps before it answers."""

import multiprocessing
import socket
import time

import gpu


def answer_late(listener):
    with open("/proc/self/comm", "w") as comm:
        comm.write("tracking")
    connection, _ = listener.accept()
    while connection.recv(64):
        time.sleep(0.01)
        connection.sendall(b"ok")


listener = socket.create_server(("127.0.0.1", 0))
server = multiprocessing.get_context("fork").Process(target=answer_late, args=(listener,), daemon=True)
server.start()
connection = socket.create_connection(listener.getsockname())
gpu.open_gpu()
for _ in gpu.until_over():
    connection.sendall(b"step")
    connection.recv(64)  # here
    gpu.step()
server.kill()
