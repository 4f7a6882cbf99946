"""A job of two ranks on two hosts that exchange their gradients over TCP in each step.

    ranks_over_tcp.py LIBCUDA SECONDS LIBNCCL OTHER_HOST ADDRESS PORT LATE_MS

The second rank moves to the network namespace of the other host, listens there, and sends LATE_MS after it was asked to.
Prints its process.
"""

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import time

import gpu
import nccl

OTHER_HOST, ADDRESS, PORT, LATE_S = *sys.argv[4:6], int(sys.argv[6]), float(sys.argv[7]) / 1000
NEW_NETWORK = 0x40000000
GRADIENTS = 5000


class Proxy(threading.Thread):
    """Talks to the other rank for the GPU."""

    def __init__(self, connection, late_s):
        super().__init__(daemon=True)
        self.connection, self.late_s = connection, late_s
        self.asked, self.done = queue.SimpleQueue(), queue.SimpleQueue()

    def run(self):
        try:
            while True:
                self.asked.get()
                time.sleep(self.late_s)
                self.connection.sendall(bytes(4 * GRADIENTS))
                missing = 4 * GRADIENTS
                while missing:
                    got = len(self.connection.recv(missing))
                    if not got:
                        raise ConnectionError
                    missing -= got
                self.done.put(None)
        except OSError:  # the other one is done
            os._exit(0)

    def exchange(self, symbol):
        self.asked.put(None)
        self.done.get()


def connected():
    for _ in range(1000):
        try:
            return socket.create_connection((ADDRESS, PORT))
        except OSError:
            time.sleep(0.01)
    sys.exit("the other rank does not listen")


def accepted():
    libc = ctypes.CDLL(None)
    with open(OTHER_HOST) as network:
        if libc.setns(network.fileno(), NEW_NETWORK):
            sys.exit("no way to the other host")
    with socket.create_server((ADDRESS, PORT)) as server:
        return server.accept()[0]


def be_rank(rank, job):
    connection = accepted() if rank else connected()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    proxy = Proxy(connection, LATE_S if rank else 0)
    proxy.start()
    gpu.open_gpu()
    exchange = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(proxy.exchange)
    nccl.meet_in_waits(exchange)
    comm = nccl.join(job, rank, 2)
    for _ in gpu.until_over():
        gpu.launch(5)
        nccl.all_reduce(comm, GRADIENTS)
        gpu.wait()
    os._exit(0)


def main():
    signal.alarm(int(gpu.SECONDS) + 30)
    # Programs do much else before they meet. A tracer sees a library some milliseconds after it is loaded.
    time.sleep(1)
    job = nccl.unique_id()
    other = os.fork()
    if other == 0:
        be_rank(1, job)
    print(other, flush=True)
    be_rank(0, job)


main()
