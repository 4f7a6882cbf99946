"""A healthy asyncio server with little traffic: a thread of its own does the work."""

import asyncio
import multiprocessing
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import gpu


def ask(port):
    chance = random.Random(1)
    while True:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"question")
            connection.recv(64)
        time.sleep(chance.uniform(0.01, 0.08))


async def serve():
    pool = ThreadPoolExecutor(1, initializer=gpu.open_gpu)

    async def answer(reader, writer):
        await reader.read(64)
        await asyncio.get_running_loop().run_in_executor(pool, gpu.step)
        writer.write(b"answer")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = multiprocessing.get_context("fork").Process(target=ask, args=(port,), daemon=True)
    client.start()
    await asyncio.sleep(gpu.SECONDS)
    client.kill()


asyncio.run(serve())
