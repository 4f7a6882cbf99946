"""A hundred clients at once, some of them slow and some that die: `doors.py SECONDS [RESULTS.json]`.

It fails if anything but 200 and 429 comes back to a client that behaves, if such a client loses its connection, if the
server's memory passes its bound, or if clients that behave starve beside those that do not. Latencies are told, not judged.
GPUWHY is the binary and GPUWHY_TRACE the trace.
"""

import asyncio
import json
import os
import platform
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "gpu"), str(HERE.parent / "tests/peers")]
import measured_code  # noqa: E402
from served import GPUWHY, server  # noqa: E402

BEHAVED, DYING, SLOW_READERS, SLOW_WRITERS = 84, 8, 4, 4
# What 256 connections, the questions that run at once and the answers on their way may take.
MOST_RSS_MB = 512
DEADLINE_S = 30


def mcp(tool, arguments):
    call = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})


def requests():
    """What is asked, some of it never twice, so that not all of it is remembered."""
    number = random.randrange(1, 1000)
    return random.choice([
        ("health", "GET", "/api/v1/health", ""),
        ("openapi", "GET", "/api/v1/openapi.json", ""),
        ("findings", "POST", "/api/v1/tools/findings", "{}"),
        ("waits", "POST", "/api/v1/tools/waits", "{}"),
        ("slow_calls", "POST", "/api/v1/tools/slow_calls", json.dumps({"limit": number})),
        ("sql", "POST", "/api/v1/sql", json.dumps({"sql": f"SELECT op, count(*), {number} FROM cuda_events GROUP BY op"})),
        ("mcp", "POST", "/mcp", mcp("slow_calls", {"limit": number})),
    ])


def encoded(method, path, body):
    head = [
        f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2025-11-25", "Content-Type: application/json", f"Content-Length: {len(body)}",
    ]
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode()


async def answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split()[1]), body


class Seen:
    def __init__(self):
        self.statuses, self.broken, self.misbehaved = Counter(), Counter(), Counter()
        self.latencies = defaultdict(list)
        self.peak_kb = 0


async def behaved(port, end, seen):
    while time.monotonic() < end:
        try:
            async with asyncio.timeout(DEADLINE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                for _ in range(random.randint(1, 20)):
                    await ask_once(reader, writer, seen)
                writer.close()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            seen.broken[type(error).__name__] += 1


async def ask_once(reader, writer, seen):
    name, method, path, body = requests()
    begun = time.monotonic()
    writer.write(encoded(method, path, body))
    status, text = await answer(reader)
    status = status_of(status, json.loads(text))
    seen.statuses[status] += 1
    if status == 200:
        seen.latencies[name].append((time.monotonic() - begun) * 1000)
    if status == 429:
        await asyncio.sleep(random.uniform(0.05, 0.2))


def status_of(status, body):
    """A tool that cannot answer says so within an answer of the protocol, whose status is 200."""
    if "jsonrpc" not in body or status != 200:
        return status
    if "error" in body:
        return f"mcp {body['error']['code']}"
    result = body["result"]
    if not result.get("isError"):
        return 200
    code = result["structuredContent"]["error"]["code"]
    return 429 if code in ("busy", "too_many_requests") else f"mcp {code}"


async def dying(port, end, seen):
    """Asks and is gone: before its request is whole, or before its answer."""
    while time.monotonic() < end:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        request = encoded("POST", "/api/v1/tools/audit", json.dumps({"limit": random.randrange(1, 1000)}))
        writer.write(request[: random.choice([5, len(request) - 3, len(request)])])
        await asyncio.sleep(random.uniform(0, 0.02))
        writer.transport.abort()
        seen.misbehaved["died"] += 1
        await asyncio.sleep(0.02)


async def slow_reader(port, end, seen):
    """Asks for the biggest answers there are, again and again, and takes them a few bytes at a time."""
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=256)
        try:
            for _ in range(8):
                writer.write(encoded("POST", "/api/v1/tools/audit", '{"limit": 1000}'))
            while time.monotonic() < end and await reader.read(64):
                await asyncio.sleep(0.1)
        except OSError:
            pass
        writer.transport.abort()
        seen.misbehaved["read slowly"] += 1


async def slow_writer(port, end, seen):
    """A byte now and then, and never a whole request."""
    while time.monotonic() < end:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for byte in encoded("POST", "/api/v1/sql", "x" * 1000):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.2)
                if time.monotonic() > end:
                    break
        except OSError:
            pass
        writer.transport.abort()
        seen.misbehaved["wrote slowly"] += 1


def memory_kb(pid, name):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1])


async def watch(pid, end, seen):
    while time.monotonic() < end:
        seen.peak_kb = max(seen.peak_kb, memory_kb(pid, "VmRSS"))
        await asyncio.sleep(0.1)


async def crowd(port, pid, seconds):
    seen, end = Seen(), time.monotonic() + seconds
    kinds = [(behaved, BEHAVED), (dying, DYING), (slow_reader, SLOW_READERS), (slow_writer, SLOW_WRITERS)]
    clients = [kind(port, end, seen) for kind, count in kinds for _ in range(count)]
    await asyncio.gather(watch(pid, end, seen), *clients)
    return seen


def latencies(seen):
    def at(values, share):
        return round(values[min(int(len(values) * share), len(values) - 1)], 1)

    table = {}
    for name, values in sorted(seen.latencies.items()):
        values.sort()
        table[name] = {"count": len(values), "p50_ms": at(values, 0.5), "p99_ms": at(values, 0.99)}
    return table


def machine(load_before):
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    return {"cpu": cpu, "cpus": os.cpu_count(), "kernel": platform.release(), "load_before": load_before,
            "clients_on_the_same_machine": True}


def run(seconds):
    load_before = round(os.getloadavg()[0], 2)
    with server("--rate", "1000000") as (address, process):
        before_kb = memory_kb(process.pid, "VmRSS")
        seen = asyncio.run(crowd(int(address.rsplit(":", 1)[1]), process.pid, seconds))
        assert process.poll() is None, "the server is gone"
        after_kb = memory_kb(process.pid, "VmRSS")
        highest_kb = memory_kb(process.pid, "VmHWM")
    return seen, {
        "seconds": seconds,
        "clients": {"behaved": BEHAVED, "dying": DYING, "slow_readers": SLOW_READERS, "slow_writers": SLOW_WRITERS},
        "answers": {str(status): count for status, count in seen.statuses.most_common()},
        "connections_broken": dict(seen.broken),
        "misbehaved": dict(seen.misbehaved),
        "memory_mb": {"before": before_kb >> 10, "peak": max(seen.peak_kb, highest_kb) >> 10, "after": after_kb >> 10},
        "latency": latencies(seen),
        "build": Path(GPUWHY).resolve().parent.name,
        "machine": machine(load_before),
    }


def judge(seen, result):
    assert set(seen.statuses) <= {200, 429}, f"other answers than 200 and 429: {dict(seen.statuses)}"
    assert not seen.broken, f"clients that behave lost their connection: {dict(seen.broken)}"
    assert result["memory_mb"]["peak"] <= MOST_RSS_MB, f"memory: {result['memory_mb']}"
    assert seen.statuses[200] >= 10 * result["seconds"], f"clients that behave starve: {dict(seen.statuses)}"
    assert all(seen.misbehaved[kind] for kind in ("died", "read slowly", "wrote slowly")), dict(seen.misbehaved)


def main():
    seen, result = run(float(sys.argv[1]))
    shown = {name: result[name] for name in ("answers", "connections_broken", "misbehaved", "memory_mb")}
    print(f"  {json.dumps(shown)}")
    for name, row in result["latency"].items():
        print(f"  {name:12} {row['count']:8} answers, p50 {row['p50_ms']} ms, p99 {row['p99_ms']} ms")
    judge(seen, result)
    if len(sys.argv) > 2:
        result |= measured_code.describe()
        Path(sys.argv[2]).write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
