"""OpenTelemetry's own messages against `gpuwhy trace --otlp`: a receiver that is down for a while gets every point once, and
what it has in the end is what the trace has.

    GPUWHY=binary tests/peers/otlp.py
"""

import gzip
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from waiting import PATIENCE_S, until

DEMO = "slow-worker-io"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        receiver = Receiver()
        trace = place / "trace.db"
        endpoint = f"http://127.0.0.1:{receiver.port}"
        command = [os.environ["GPUWHY"], "trace", "--live", "never", "--out", str(trace), "--otlp", endpoint]
        environment = {**os.environ, "OTEL_RESOURCE_ATTRIBUTES": "k8s.node.name=gpu-7"}
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        # Whoever writes there must not have to wait.
        said = []
        ready = threading.Event()
        threading.Thread(target=listen, args=(tracer, said, ready), daemon=True).start()
        try:
            assert ready.wait(PATIENCE_S), said
            until("numbers come", lambda: receiver.points)
            receiver.stop()
            demo = [os.environ["GPUWHY"], "demo", DEMO, "--out", str(place / "demo.db")]
            subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
            time.sleep(12)  # longer than two batches are apart
            receiver.start()
            until("a finding comes", lambda: any("input-starved" in causes(record) for record in receiver.records))
            tracer.send_signal(signal.SIGINT)
            assert tracer.wait(PATIENCE_S) == 0, said
        finally:
            tracer.kill()
            tracer.wait()
        return checked(receiver, trace, said)


def checked(receiver: "Receiver", trace: Path, said: list[str]) -> int:
    assert not [line for line in said if "not taken" in line], said
    twice = [point for point, times in receiver.points.items() if times > 1]
    assert not twice, twice[:5]
    assert receiver.resource["service.name"] == "gpuwhy" and receiver.resource["k8s.node.name"] == "gpu-7"
    record = next(record for record in receiver.records if "input-starved" in causes(record))
    assert record.event_name == "gpuwhy.finding" and record.body.string_value, record
    is_launch = lambda name, attributes: name == "gpuwhy_calls" and ("code.function.name", "cuLaunchKernel") in attributes
    launches = sum(number for key, number in receiver.last.items() if is_launch(*key))
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
        estimate, = connection.execute("SELECT sum(estimate) FROM call_counts JOIN ops ON ops.id = op_id WHERE name = 'cuLaunchKernel'").fetchone()
    assert launches == estimate, (launches, estimate)
    print(f"{len(receiver.points)} points of {receiver.batches} batches, each once; {launches:.0f} launches, as the trace has; {record.body.string_value}")
    return 0


def causes(record) -> list[str]:
    return [value(one) for one in record.attributes if one.key == "gpuwhy.cause"]


def listen(tracer: subprocess.Popen, said: list[str], ready: threading.Event) -> None:
    for line in tracer.stderr:
        said.append(line)
        if "tracing " in line:
            ready.set()


class Receiver:
    """Keeps what it is sent: each point by its name, attributes and time, and the last value of each number."""

    def __init__(self) -> None:
        self.points, self.last, self.records, self.resource, self.batches = Counter(), {}, [], {}, 0
        self.port = 0
        self.start()

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                answer = receiver.take(self.path, body).SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def take(self, path: str, body: bytes):
        self.batches += 1
        if path == "/v1/logs":
            for one in ExportLogsServiceRequest.FromString(body).resource_logs:
                self.records += [record for scope in one.scope_logs for record in scope.log_records]
            return ExportLogsServiceResponse()
        assert path == "/v1/metrics", path
        for one in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            self.resource = {attribute.key: value(attribute) for attribute in one.resource.attributes}
            for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                self.keep(metric)
        return ExportMetricsServiceResponse()

    def keep(self, metric) -> None:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            attributes = tuple(sorted((one.key, value(one)) for one in point.attributes))
            self.points[metric.name, attributes, point.time_unix_nano] += 1
            if kind == "histogram":
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 and sum(point.bucket_counts) == point.count
            else:
                self.last[metric.name, attributes] = point.as_double


def value(attribute):
    return getattr(attribute.value, attribute.value.WhichOneof("value"))


if __name__ == "__main__":
    sys.exit(main())
