"""Somebody who knows nothing of the trace asks why the GPU waits, by tools alone, as the prompt `investigate` says.

The demo's incident is known: the process that makes the batches, disk-loader, reads the disk too slowly. What is found has
to be that cause, that process and a line of its source, in at most five calls, and the evidence has to be there.
"""

import anyio
from mcp import Client, StdioServerParameters

from served import GPUWHY, server, stdio_arguments

MOST_CALLS = 5


async def investigate(client):
    calls = 0

    async def ask(tool, **parameters):
        nonlocal calls
        calls += 1
        result = await client.call_tool(tool, parameters)
        assert not result.is_error, f"{tool}: {result.structured_content}"
        return result.structured_content

    found = await ask("findings")
    worst = found["findings"][0]
    culprit, victim = worst["culprit"], worst["victim"]
    # Is it proven? The records that the chain cites are looked up.
    cited = worst["chain"][0]["refs"][0]
    record = await ask("record", ref=cited)
    # Does the culprit's own time say the same?
    waits = await ask("off_cpu", pid=culprit["pid"])
    # Is the thread that feeds the GPU really the one that waits?
    split = await ask("waits", pid=victim["pid"])
    return {
        "cause": worst["cause"], "summary": worst["summary"], "culprit": culprit, "victim": victim, "chain": worst["chain"],
        "lines": [place for place in worst["where"] if place.get("role") == "culprit"],
        "lost": found["coverage"]["lost"], "record": record, "waits": waits, "split": split, "calls": calls,
    }


def is_right(answer):
    assert answer["calls"] <= MOST_CALLS, f"it took {answer['calls']} calls"
    assert answer["cause"] == "input-starved", answer["summary"]
    assert answer["culprit"]["comm"] == "disk-loader", answer["culprit"]
    assert answer["victim"]["pid"] != answer["culprit"]["pid"], answer["victim"]
    sources = [(place["file"].rsplit("/", 1)[-1], place["function"]) for place in answer["lines"] if place.get("line")]
    assert ("scenario_disk.c", "read_block") in sources, sources
    assert all(link["evidence"] != "missing" for link in answer["chain"]), answer["chain"]
    assert answer["record"]["record"]["pid"] == answer["victim"]["pid"], answer["record"]
    assert answer["record"]["record"]["woken_by_pid"] == answer["culprit"]["pid"], answer["record"]
    longest = max(answer["waits"]["waits"], key=lambda wait: wait["blocked_ns"])
    assert longest["reason"] == "io" and longest["function"] == "read_block", longest


async def main():
    stdio = StdioServerParameters(command=GPUWHY, args=stdio_arguments())
    with server() as (address, _):
        for name, target in (("stdio", stdio), ("http", f"{address}/mcp")):
            async with Client(target, mode="auto") as client:
                answer = await investigate(client)
            is_right(answer)
            line = next(place for place in answer["lines"] if place["function"] == "read_block")
            print(f"  {name}: {answer['summary']}")
            print(f"  {name}: {line['file'].rsplit('/', 1)[-1]}:{line['line']} {line['function']}, in {answer['calls']} calls")


if __name__ == "__main__":
    anyio.run(main)
