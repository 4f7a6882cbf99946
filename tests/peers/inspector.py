"""The MCP inspector's command line against both transports, in the older protocol and in the newest one."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from served import GPUWHY, server, stdio_arguments

INSPECTOR = os.environ["INSPECTOR"].split()


def inspect(target, era, *request):
    """The result of one request; --strict also refuses schemas that other clients stumble over."""
    command = [*INSPECTOR, "--cli", *target, "--protocol-era", era, "--format", "json", "-q", *request]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, f"{request}: {ran.returncode}\n{ran.stdout[:2000]}\n{ran.stderr[:2000]}"
    return json.loads(ran.stdout)["result"]


def tools(target, era):
    listed = inspect(target, era, "--method", "tools/list", "--strict")["tools"]
    assert {"findings", "get_causal_chains", "run_sql"} <= {tool["name"] for tool in listed}


def findings(target, era):
    found = inspect(target, era, "--method", "tools/call", "--tool-name", "findings")
    assert found["structuredContent"]["findings"][0]["cause"] == "input-starved"


def arguments(target, era):
    call = ["--method", "tools/call", "--tool-name", "sql", "--tool-arg", "sql=SELECT 6 * 7 AS answer", "limit=1"]
    assert inspect(target, era, *call)["structuredContent"]["rows"] == [[42]]


def resource(target, era):
    listed = inspect(target, era, "--method", "resources/list")["resources"]
    assert len(listed) == 3, listed
    read = inspect(target, era, "--method", "resources/read", "--uri", "gpuwhy://causes")
    assert "input-starved" in read["contents"][0]["text"]


def prompt(target, era):
    got = inspect(target, era, "--method", "prompts/get", "--prompt-name", "investigate", "--prompt-args", "pid=4711")
    assert "4711" in got["messages"][0]["content"]["text"]


def main():
    with server("--rate", "1000") as (address, _), ThreadPoolExecutor(2) as pool:
        targets = {"stdio": [GPUWHY, *stdio_arguments()], "http": [f"{address}/mcp"]}
        jobs = [
            (name, era, ask, pool.submit(ask, target, era))
            for name, target in targets.items() for era in ("legacy", "modern")
            for ask in (tools, findings, arguments, resource, prompt)
        ]
        for name, era, ask, job in jobs:
            job.result()
            print(f"  {name}, {era}: {ask.__name__}")


if __name__ == "__main__":
    sys.exit(main())
