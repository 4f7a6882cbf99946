"""Prometheus and its promtool against `gpuwhy trace --prometheus`: the text is clean in both formats, and what a query
returns is what the trace has.

    PROMETHEUS=folder GPUWHY=binary tests/peers/metrics.py
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path

from waiting import PATIENCE_S, until

TOOLS = Path(os.environ["PROMETHEUS"])
ALERTS = Path(__file__).parents[2] / "deploy/prometheus-alerts.yml"
BOARD = Path(__file__).parents[2] / "deploy/grafana.json"
# Numbers that need a GPU, a network that loses segments or a fabric.
NOT_HERE = ("gpuwhy_sample{", "gpuwhy_tcp_retransmits_total", "gpuwhy_rdma_")
DEMO = "slow-worker-io"


def main() -> int:
    subprocess.run([TOOLS / "promtool", "check", "rules", ALERTS], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        trace = place / "trace.db"
        # All that happens on this machine, as an agent that runs for good would see it.
        command = [os.environ["GPUWHY"], "trace", "--live", "never", "--out", str(trace), "--prometheus", "127.0.0.1:0"]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            return checked(place, trace, tracer)
        finally:
            tracer.kill()
            tracer.wait()


def checked(place: Path, trace: Path, tracer: subprocess.Popen) -> int:
    address = re.search(r"http://(\S+)/metrics", said(tracer, "metrics at ")).group(1)
    said(tracer, "tracing ")
    server = Server(place, address)
    try:
        subprocess.run([os.environ["GPUWHY"], "demo", DEMO, "--out", str(place / "demo.db")], check=True, stdout=subprocess.DEVNULL)
        until("findings are there", lambda: 'gpuwhy_finding_ratio{cause="input-starved"' in scraped(address))
        clean(scraped(address))
        open_metrics = scraped(address, "application/openmetrics-text; version=1.0.0")
        assert open_metrics.endswith("# EOF\n"), open_metrics[-200:]
        # Once nobody calls any more, what Prometheus has is what the trace has.
        until("Prometheus has seen all of it", lambda: server.value("sum(gpuwhy_calls_total)") == last_calls(address))
        until("it knows what was found", lambda: (server.value('max(gpuwhy_finding_ratio{cause="input-starved"})') or 0) > 0.1)
        launches = server.value('sum(gpuwhy_calls_total{function="cuLaunchKernel"})')
        drawn = draw(server)
        up = server.value(f'up{{instance="{address}"}}')
        assert up == 1, up
    finally:
        server.end()
    tracer.send_signal(signal.SIGINT)
    assert tracer.wait(PATIENCE_S) == 0
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
        estimate, = connection.execute("SELECT sum(estimate) FROM call_counts JOIN ops ON ops.id = op_id WHERE name = 'cuLaunchKernel'").fetchone()
    assert launches == estimate, (launches, estimate)
    print(f"promtool finds nothing; Prometheus counts {launches:.0f} launches, as the trace does, and knows all {drawn} lines of the board")
    return 0


def draw(server: "Server") -> int:
    """Everything that the board draws is there."""
    panels = json.loads(BOARD.read_text())["panels"]
    drawn = [target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]]
    for query in drawn:
        result = server.result(query)
        assert result or any(name in query for name in NOT_HERE), f"nothing to draw: {query}"
    return len(drawn)


def said(tracer: subprocess.Popen, words: str) -> str:
    for line in tracer.stderr:
        if words in line:
            return line
    raise AssertionError(f"it never said {words!r}")


def scraped(address: str, accept: str = "text/plain") -> str:
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def clean(text: str) -> None:
    done = subprocess.run([TOOLS / "promtool", "check", "metrics"], input=text, text=True, capture_output=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stdout + done.stderr


def last_calls(address: str) -> float:
    lines = [line for line in scraped(address).splitlines() if line.startswith("gpuwhy_calls_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


class Server:
    """A Prometheus that scrapes once a second."""

    def __init__(self, place: Path, address: str) -> None:
        config = place / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "gpuwhy", "static_configs": [{"targets": [address]}]}],
        }))
        self.port = free_port()
        command = [TOOLS / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={place / 'data'}",
                   f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until("Prometheus is ready", self.is_ready)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def result(self, query: str) -> list:
        text = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{text}", timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    def value(self, query: str) -> float | None:
        result = self.result(query)
        return float(result[0]["value"][1]) if result else None

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)


def free_port() -> int:
    import socket

    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return taken.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
