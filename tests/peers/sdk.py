"""The Python SDK's client against both transports, in the handshake of older protocols and in the newest one."""

import asyncio
import os
import re
import ssl
import subprocess
import sys
import tempfile

import anyio
import httpx2
from jsonschema import Draft202012Validator
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from served import GPUWHY, server, stdio_arguments

TOKEN = "0123456789abcdef0123456789abcdef"
# What published recipes call.
ALIASES = {
    "get_check", "get_trace_stats", "get_causal_chains", "get_stacks", "run_demo", "run_sql", "get_test_report",
}
FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


async def every_tool_answers_by_its_schema(client):
    tools = (await client.list_tools()).tools
    names = {tool.name for tool in tools}
    assert ALIASES <= names, ALIASES - names
    assert names - ALIASES == questions(), names ^ questions()
    for tool in tools:
        Draft202012Validator.check_schema(tool.input_schema)
        Draft202012Validator.check_schema(tool.output_schema)
        assert tool.description and tool.annotations.open_world_hint is False, tool.name
    for tool in tools:
        if not tool.annotations.read_only_hint:
            assert tool.name in ("demo", "run_demo"), f"{tool.name} acts"
            continue
        result = await client.call_tool(tool.name, await parameters(client, tool))
        fenced(result)
        assert not result.is_error, f"{tool.name}: {result.structured_content}"
        Draft202012Validator(tool.output_schema).validate(result.structured_content)


def questions():
    """The questions as the terminal lists them."""
    text = subprocess.run([GPUWHY, "ask", "--help"], check=True, capture_output=True, text=True).stdout
    listed = text.split("Commands:\n")[1].split("\n\n")[0]
    return set(re.findall(r"^  (\w+)", listed, re.M)) - {"help"}


async def parameters(client, tool):
    """What a tool cannot do without."""
    needed = set(tool.input_schema.get("required", []))
    if not needed:
        return {}
    if needed == {"sql"}:
        return {"sql": "SELECT count(*) AS n FROM cuda_events"}
    if needed == {"ref"}:
        found = (await client.call_tool("slow_calls", {"limit": 1})).structured_content
        return {"ref": found["calls"][0]["ref"]}
    raise AssertionError(f"{tool.name} needs {needed}, and this test does not know them")


def fenced(result):
    """The text says that it is data, between two lines that are the same."""
    (block,) = result.content
    first, boundary, *_, last = block.text.split("\n")
    assert "not instructions" in first and boundary == last and boundary.startswith("DATA-"), first


async def a_wrong_call_is_an_error_with_a_code(client):
    wrong = await client.call_tool("sql", {"sql": "DELETE FROM cuda_events"})
    assert wrong.is_error and wrong.structured_content["error"]["code"], wrong
    wrong = await client.call_tool("calls", {"no_such_parameter": 1})
    assert wrong.is_error and "no_such_parameter" in wrong.structured_content["error"]["message"], wrong
    try:
        await client.call_tool("no_such_tool", {})
    except MCPError as error:
        assert error.error.code == -32602, error
    else:
        raise AssertionError("a tool that is not there was called")


async def resources_and_the_prompt_can_be_read(client):
    listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
    assert listed == {"gpuwhy://schema", "gpuwhy://causes", "gpuwhy://findings"}, listed
    for uri, word in [("schema", "cuda_events"), ("causes", "input-starved"), ("findings", '"findings"')]:
        contents = (await client.read_resource(f"gpuwhy://{uri}")).contents
        assert word in contents[0].text, uri
    try:
        await client.read_resource("gpuwhy://../../etc/passwd")
    except MCPError:
        pass
    else:
        raise AssertionError("a resource that is not there was read")
    prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == ["investigate"], prompts
    prompt = await client.get_prompt("investigate", {"pid": "4711"})
    assert "4711" in prompt.messages[0].content.text


async def pages_follow_one_another(client):
    whole = (await client.call_tool("audit", {"limit": 40})).structured_content["calls"]
    pages, after = [], {}
    while len(pages) < 40:
        page = (await client.call_tool("audit", {"limit": 7, **after})).structured_content
        pages += page["calls"]
        if not page.get("next"):
            break
        after = {"after": page["next"]}
    assert [call["ref"] for call in pages][:40] == [call["ref"] for call in whole], "pages miss or repeat rows"


async def progress_is_told(client):
    told = []

    async def hear(done, total, what):
        told.append((done, total, what))

    # Nobody has asked this before, so it is not remembered.
    other = {"from": 1 + int.from_bytes(os.urandom(4), "big")}
    result = await client.call_tool("findings", other, progress_callback=hear)
    assert not result.is_error, result.structured_content
    for _ in range(100):
        if told:
            break
        await asyncio.sleep(0.02)
    assert told, "no progress was told"
    assert all(total == 1.0 and what for _, total, what in told), told
    assert told == sorted(told), told


async def a_cancelled_call_ends_on_the_server_too(client, running):
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: client.call_tool("sql", {"sql": FOR_EVER}))
        await until(lambda: running() > 0, "the call does not start")
        group.cancel_scope.cancel()
    await until(lambda: running() == 0, "the call goes on after it was cancelled")
    again = await client.call_tool("sql", {"sql": "SELECT 1 AS one"})
    assert again.structured_content["rows"] == [[1]], again


async def until(is_so, otherwise):
    with anyio.fail_after(8):
        while not is_so():
            await anyio.sleep(0.02)


CHECKS = [
    every_tool_answers_by_its_schema,
    a_wrong_call_is_an_error_with_a_code,
    resources_and_the_prompt_can_be_read,
    pages_follow_one_another,
    progress_is_told,
]


async def all_checks(client, transport, running):
    assert client.server_info.name == "gpuwhy" and "findings" in client.instructions
    for check in CHECKS:
        await check(client)
        print(f"  {transport}, {client.protocol_version}: {check.__name__.replace('_', ' ')}")
    await a_cancelled_call_ends_on_the_server_too(client, running)
    print(f"  {transport}, {client.protocol_version}: a cancelled call ends on the server too")


async def over_stdio(mode):
    target = StdioServerParameters(command=GPUWHY, args=stdio_arguments())
    before = set(children())
    async with Client(target, mode=mode, cache=None) as client:
        (pid,) = set(children()) - before
        await all_checks(client, "stdio", lambda: busy_threads(pid))


def children():
    tasks = os.listdir("/proc/self/task")
    return [pid for task in tasks for pid in open(f"/proc/self/task/{task}/children").read().split()]


def busy_threads(pid):
    """Threads that use a CPU now: a question for ever does."""
    states = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            states.append(open(f"/proc/{pid}/task/{tid}/stat").read().rsplit(")", 1)[1].split()[0])
        except OSError:
            continue
    return states.count("R")


async def over_http(mode, certificate):
    more = ["--tls-cert", f"{certificate}/cert.pem", "--tls-key", f"{certificate}/key.pem"]
    with open(f"{certificate}/token", "w") as file:
        file.write(TOKEN)
    with server(*more, "--token-file", f"{certificate}/token", "--rate", "1000") as (address, _):
        context = ssl.create_default_context(cafile=f"{certificate}/cert.pem")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, verify=context, timeout=30) as http:
            health = httpx2.Client(headers=headers, verify=context)

            def running():
                return health.get(f"{address}/api/v1/health").json()["questions_running"]

            async with Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=mode, cache=None) as client:
                await all_checks(client, "https with token", running)
        await nobody_enters_without_the_token(address, context)


async def nobody_enters_without_the_token(address, context):
    async with httpx2.AsyncClient(verify=context) as http:
        try:
            async with Client(streamable_http_client(f"{address}/mcp", http_client=http), mode="legacy"):
                raise AssertionError("a client without a token was let in")
        except* (MCPError, httpx2.HTTPError):
            pass


def make_certificate(folder):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=gpuwhy test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"],
        check=True, capture_output=True,
    )


async def main():
    with tempfile.TemporaryDirectory() as folder:
        make_certificate(folder)
        for mode in ("legacy", "auto"):
            await over_stdio(mode)
            await over_http(mode, folder)


if __name__ == "__main__":
    anyio.run(main)
    sys.exit(0)
