"""Prometheus and its promtool against `gpuwhy trace --prometheus`: the text is clean in both formats, and what a query
returns is what the trace has. One Prometheus scrapes text, another one native histograms.

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
import time
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path

from waiting import PATIENCE_S, until

TOOLS = Path(os.environ["PROMETHEUS"])
ALERTS = Path(__file__).parents[2] / "deploy/prometheus-alerts.yml"
BOARD = Path(__file__).parents[2] / "deploy/grafana.json"
# Numbers that need a GPU, a network that loses segments, a fabric, or ranks that meet some time after they have loaded NCCL.
NOT_HERE = ("gpuwhy_sample{", "gpuwhy_tcp_retransmits_total", "gpuwhy_rdma_", "gpuwhy_collective_")
DEMO = "slow-worker-io"
QUANTILES = (0.5, 0.9, 0.99)
# How far a quantile of a native histogram may be from that of the trace: the width of a bucket.
NATIVE_WIDTH = 2 ** (1 / 32) - 1
DURATIONS = "gpuwhy_call_duration_seconds"


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
    server = Server(place / "text", address, "exemplar-storage")
    native = Server(place / "native", address, "native-histograms,exemplar-storage")
    try:
        demo(place)
        until("findings are there", lambda: 'gpuwhy_finding_ratio{cause="input-starved"' in scraped(address))
        clean(scraped(address))
        open_metrics = scraped(address, "application/openmetrics-text; version=1.0.0")
        assert open_metrics.endswith("# EOF\n"), open_metrics[-200:]
        # Once nobody calls any more, what Prometheus has is what the trace has.
        until("Prometheus has seen all of it", lambda: server.value("sum(gpuwhy_calls_total)") == last_calls(address))
        until("it knows what was found", lambda: (server.value('max(gpuwhy_finding_ratio{cause="input-starved"})') or 0) > 0.1)
        launches = server.value('sum(gpuwhy_calls_total{function="cuLaunchKernel"})')
        drawn = draw(server)
        for one in (server, native):
            assert one.value(f'up{{instance="{address}"}}') == 1
        in_text = server.values(f"{DURATIONS}_count", "function")
        until("the native histogram has all of it", lambda: native.values(f"histogram_count({DURATIONS})", "function") == in_text)
        assert not native.result(f"{DURATIONS}_bucket"), "it takes what is more exact"
        sums = native.values(f"histogram_sum({DURATIONS})", "function")
        quantiles = {share: native.values(f"histogram_quantile({share}, {DURATIONS})", "function") for share in QUANTILES}
        exemplars = server.exemplars(f"{DURATIONS}_bucket"), native.exemplars(DURATIONS)
    finally:
        server.end()
        native.end()
    tracer.send_signal(signal.SIGINT)
    assert tracer.wait(PATIENCE_S) == 0
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
        estimate, = connection.execute("SELECT sum(estimate) FROM call_counts JOIN ops ON ops.id = op_id WHERE name = 'cuLaunchKernel'").fetchone()
        assert launches == estimate, (launches, estimate)
        compare(Durations.read(connection), in_text, sums, quantiles)
        for told in exemplars:
            assert {labels["function"] for labels, _ in told} == set(in_text), (told, in_text)
            for one in told:
                is_of_a_call(connection, *one)
    print(f"promtool finds nothing; Prometheus counts {launches:.0f} launches, as the trace does, and knows all {drawn} lines of the board")
    print(f"quantiles of {len(in_text)} native histograms are those of the trace, and so are {sum(map(len, exemplars))} exemplars")
    return 0


class Durations:
    """What a trace says of a function: how many calls, how long all of them took, and how many in which bucket."""

    def __init__(self) -> None:
        self.count, self.sum_ns, self.buckets = 0, 0, {}

    @classmethod
    def read(cls, connection: sqlite3.Connection) -> dict[str, "Durations"]:
        functions = {}
        for name, count, sum_ns, histogram in connection.execute("SELECT op, count, sum_ns, histogram FROM call_stats"):
            durations = functions.setdefault(name, cls())
            durations.count += count
            durations.sum_ns += sum_ns
            for lower_ns, calls in json.loads(histogram):
                durations.buckets[lower_ns] = durations.buckets.get(lower_ns, 0) + calls
        return functions

    def quantile(self, share: float) -> float:
        """The middle of the bucket that has it, in seconds."""
        below = 0
        for lower_ns, calls in sorted(self.buckets.items()):
            below += calls
            if below >= share * self.count:
                # Eight buckets for each power of two; the first one has all that is shorter.
                return (lower_ns + (1 << (lower_ns.bit_length() - 1)) / 16) / 1e9 if lower_ns else 64e-9
        raise AssertionError("there are no calls")


def compare(kept: dict[str, Durations], counts: dict, sums: dict, quantiles: dict) -> None:
    assert len(counts) > 3 and counts == {name: one.count for name, one in kept.items()}, counts
    for name, one in kept.items():
        assert abs(sums[name] - one.sum_ns / 1e9) <= 1e-9 * (1 + sums[name]), (name, sums[name], one.sum_ns)
        for share, told in quantiles.items():
            expected = one.quantile(share)
            # What takes less than 128 ns is in the zero bucket.
            assert expected <= 128e-9 or abs(told[name] / expected - 1) <= NATIVE_WIDTH, (name, share, told[name], expected)


def is_of_a_call(connection: sqlite3.Connection, labels: dict, exemplar: dict) -> None:
    """The trace has the call that an exemplar tells of."""
    of = exemplar["labels"]
    found = connection.execute(
        "SELECT op, duration_ns, timestamp_ns FROM cuda_events WHERE id = ? AND pid = ? AND tid = ?",
        (int(of["call"].removeprefix("cuda:")), int(of["pid"]), int(of["tid"])),
    ).fetchone()
    assert found, exemplar
    function, duration_ns, start_ns = found
    assert function == labels["function"] and round(float(exemplar["value"]) * 1e9) == duration_ns, (labels, exemplar, found)
    assert abs(exemplar["timestamp"] - (start_ns + duration_ns) / 1e9) < 0.002, (exemplar, found)


def demo(place: Path) -> None:
    subprocess.run([os.environ["GPUWHY"], "demo", DEMO, "--out", str(place / "demo.db")], check=True, stdout=subprocess.DEVNULL)


def draw(server: "Server") -> int:
    """Everything that the board draws is there, as far as this machine can have it."""
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

    def __init__(self, place: Path, address: str, features: str) -> None:
        place.mkdir()
        config = place / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "gpuwhy", "static_configs": [{"targets": [address]}]}],
        }))
        self.port = free_port()
        command = [TOOLS / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={place / 'data'}",
                   f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error", f"--enable-feature={features}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until("Prometheus is ready", self.is_ready)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> list | dict:
        text = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{text}", timeout=10) as answer:
            return json.load(answer)["data"]

    def result(self, query: str) -> list:
        return self.ask("query", query=query)["result"]

    def values(self, query: str, label: str) -> dict[str, float]:
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in self.result(query)}

    def exemplars(self, series: str) -> list[tuple[dict, dict]]:
        """Each with the labels of its series."""
        now = time.time()
        found = self.ask("query_exemplars", query=series, start=str(now - 3600), end=str(now + 60))
        return [(one["seriesLabels"], exemplar) for one in found for exemplar in one["exemplars"]]

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
