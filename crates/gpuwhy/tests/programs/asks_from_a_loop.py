"""An asyncio server that asks another server before it answers a request, and that one takes its time."""

import asyncio
import multiprocessing
import socket
import time

import gpu


def look_up(listener):
    with open("/proc/self/comm", "w") as comm:
        comm.write("features")
    connection, _ = listener.accept()
    while connection.recv(64):
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            sum(range(200))
        connection.sendall(b"features")


def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            connection.sendall(b"question")
            connection.recv(64)


async def serve(address):
    # It waits for its sockets for a while before it listens.
    features, to_features = await asyncio.open_connection(*address)
    await asyncio.sleep(0.3)
    is_free = asyncio.Lock()

    async def answer(reader, writer):
        while await reader.read(64):
            async with is_free:
                to_features.write(b"question")
                await features.read(64)
                gpu.step()
            writer.write(b"answer")

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    clients = [fork.Process(target=ask, args=(port,), daemon=True) for _ in range(2)]
    for client in clients:
        client.start()
    await asyncio.sleep(gpu.SECONDS)
    for client in clients:
        client.kill()


fork = multiprocessing.get_context("fork")
listener = socket.create_server(("127.0.0.1", 0))
server = fork.Process(target=look_up, args=(listener,), daemon=True)
server.start()
address = listener.getsockname()
listener.close()
gpu.open_gpu()
asyncio.run(serve(address))  # here
server.kill()
