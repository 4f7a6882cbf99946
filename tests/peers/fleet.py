"""OpenTelemetry's own SDK tells a fleet what ranks do, and OpenTelemetry's own messages are what gpuwhy tells: `gpuwhy fleet serve`
names the rank that others wait for, and another receiver takes what `gpuwhy trace --fleet` sends.

    GPUWHY=binary tests/peers/fleet.py
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import grpc
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from receivers import OverHttp
from waiting import PATIENCE_S, until

GPUWHY = os.environ["GPUWHY"]
RANKS, LATE = 4, 2


def main() -> int:
    with fleet() as address:
        told_by_the_sdk(address)
        told_over_grpc(address)
    told_to_another_receiver()
    return 0


@contextmanager
def fleet():
    with tempfile.TemporaryDirectory() as data:
        command = [GPUWHY, "fleet", "serve", "--addr", "127.0.0.1:0", "--audit-log", os.devnull, "--data", data]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            yield server.stderr.readline().split("://")[1].split("/")[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(PATIENCE_S) == 0
        finally:
            server.kill()
            server.wait()


class Rank:
    """One that waits 10 ms for each operation, or hardly any time if others wait for it."""

    def __init__(self, address: str, rank: int) -> None:
        labels = {"communicator": "00000000000000ff", "rank": rank, "ranks": RANKS}
        exporter = OTLPMetricExporter(endpoint=f"http://{address}/v1/metrics")
        self.reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
        resource = Resource({"host.name": f"node{rank}", "process.pid": 4000 + rank, "process.executable.name": "trainer"})
        self.provider = MeterProvider(resource=resource, metric_readers=[self.reader])
        meter = self.provider.get_meter("somebody's own")
        self.operations = meter.create_counter("gpuwhy.worker.operations", unit="{operation}")
        self.wait = meter.create_counter("gpuwhy.worker.operations_wait", unit="s")
        self.own = meter.create_counter("trainer.samples")
        self.labels, self.waits_s = labels, 0.001 if rank == LATE else 0.010

    def work(self) -> None:
        self.operations.add(25, self.labels)
        self.wait.add(25 * self.waits_s, self.labels)
        self.own.add(800)
        self.reader.collect()


def told_by_the_sdk(address: str) -> None:
    ranks = [Rank(address, rank) for rank in range(RANKS)]

    def stragglers():
        for rank in ranks:
            rank.work()
        command = [GPUWHY, "fleet", "ask", "stragglers", "--json", "--fleet", f"http://{address}"]
        asked = subprocess.run(command, capture_output=True, text=True)
        return asked.returncode == 0 and json.loads(asked.stdout)["stragglers"]

    until("a rank is late", stragglers)
    late = stragglers()
    assert [(one["node"], one["rank"], one["pid"]) for one in late] == [(f"node{LATE}", LATE, 4000 + LATE)], late
    for rank in ranks:
        rank.provider.shutdown()
    print(f"told by the SDK: {late[0]['node']} is late by {late[0]['at_a_time_ns'] / 1e6:.1f} ms of each operation")


def told_over_grpc(address: str) -> None:
    """By gRPC's own client, with OpenTelemetry's own messages, packed and not."""
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        request = metrics_service_pb2.ExportMetricsServiceRequest()
        told = request.resource_metrics.add()
        for key, value in {"host.name": "over-grpc", "process.executable.name": "trainer"}.items():
            told.resource.attributes.add(key=key).value.string_value = value
        told.resource.attributes.add(key="process.pid").value.int_value = 4711
        metrics = told.scope_metrics.add().metrics
        metrics.add(name="gpuwhy.worker.gpu_idle").gauge.data_points.add(time_unix_nano=1 + compression.value, as_double=0.25)
        metrics.add(name="trainer.own").gauge.data_points.add(time_unix_nano=1, as_double=1.0)
        with grpc.insecure_channel(address) as channel:
            service = metrics_service_pb2_grpc.MetricsServiceStub(channel)
            answer = service.Export(request, timeout=PATIENCE_S, compression=compression)
            assert answer.partial_success.rejected_data_points == 1, answer
            try:
                broken = channel.unary_unary("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export")
                broken(b"\xff\xff\xff", timeout=PATIENCE_S)
                raise AssertionError("nonsense was taken")
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    command = [GPUWHY, "fleet", "ask", "workers", "over-grpc", "--json", "--fleet", f"http://{address}"]
    workers = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["workers"]
    assert [(one["pid"], one["gpu_idle"]) for one in workers] == [(4711, 0.25)], workers
    print("told over gRPC: a worker's numbers, and what is nonsense is refused")


def told_to_another_receiver() -> None:
    receiver = OverHttp()
    receiver.start()
    with tempfile.TemporaryDirectory() as folder:
        trace = [GPUWHY, "trace", "--live", "never", "--out", str(Path(folder) / "trace.db"), "--fleet", receiver.endpoint]
        demo = [GPUWHY, "demo", "slow-worker-io", "--out", str(Path(folder) / "demo.db")]
        traced = subprocess.run([*trace, "--node", "node7", "--", *demo], capture_output=True, text=True, timeout=PATIENCE_S)
        assert traced.returncode == 0, traced.stderr
    receiver.stop()
    names = {name for name, *_ in receiver.points}
    assert {"gpuwhy.worker.steps", "gpuwhy.worker.gpu_idle", "gpuwhy.worker.thread_time"} <= names, names
    assert receiver.resource["host.name"] == "node7" and receiver.resource["process.pid"] > 0, receiver.resource
    print(f"told to another receiver: {sum(receiver.points.values())} points, {', '.join(sorted(names))}")


if __name__ == "__main__":
    sys.exit(main())
