"""Receivers of OpenTelemetry made of its own messages: over HTTP as Python's own server, over gRPC as gRPC's own."""

import gzip
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver:
    """Keeps what it is sent: each point by its name, attributes and time, the last value of each number, records and spans."""

    def __init__(self) -> None:
        self.points, self.last, self.records, self.resource, self.batches = Counter(), {}, [], {}, 0
        self.spans, self.span_times = {}, Counter()
        self.port = 0

    def take_metrics(self, request):
        self.batches += 1
        for one in request.resource_metrics:
            self.resource = values(one.resource)
            for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                self.keep(metric)
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def take_logs(self, request):
        self.batches += 1
        for one in request.resource_logs:
            self.records += [record for scope in one.scope_logs for record in scope.log_records]
        return logs_service_pb2.ExportLogsServiceResponse()

    def take_spans(self, request):
        self.batches += 1
        for one in request.resource_spans:
            assert values(one.resource)["service.name"] == "gpuwhy", one.resource
            for span in (span for scope in one.scope_spans for span in scope.spans):
                self.spans[span.trace_id, span.span_id] = span
                self.span_times[span.trace_id, span.span_id] += 1
        return trace_service_pb2.ExportTraceServiceResponse()

    def keep(self, metric) -> None:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            attributes = tuple(sorted(values(point).items()))
            self.points[metric.name, attributes, point.time_unix_nano] += 1
            if kind == "histogram":
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 and sum(point.bucket_counts) == point.count
            else:
                self.last[metric.name, attributes] = point.as_double


class OverHttp(Receiver):
    name, variables = "HTTP", {}

    def start(self) -> None:
        ways = {
            "/v1/metrics": (metrics_service_pb2.ExportMetricsServiceRequest, self.take_metrics),
            "/v1/logs": (logs_service_pb2.ExportLogsServiceRequest, self.take_logs),
            "/v1/traces": (trace_service_pb2.ExportTraceServiceRequest, self.take_spans),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
                request, take = ways[self.path]
                answer = take(request.FromString(body)).SerializeToString()
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

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def check(self) -> None:
        pass


class OverGrpc(Receiver):
    """Turns the first call away, and says for how long."""

    name, variables = "gRPC", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret"}
    DELAY_S = 4  # longer than it would wait by itself

    def __init__(self, credentials=None) -> None:
        super().__init__()
        self.credentials, self.calls, self.turned_away = credentials, [], None

    def start(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(4))
        for add, kind, take in [
            (metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, metrics_service_pb2_grpc.MetricsServiceServicer, self.take_metrics),
            (logs_service_pb2_grpc.add_LogsServiceServicer_to_server, logs_service_pb2_grpc.LogsServiceServicer, self.take_logs),
            (trace_service_pb2_grpc.add_TraceServiceServicer_to_server, trace_service_pb2_grpc.TraceServiceServicer, self.take_spans),
        ]:
            export = lambda _, request, context, take=take: self.answer(request, context, take)
            add(type("Service", (kind,), {"Export": export})(), self.server)
        address = f"127.0.0.1:{self.port}"
        self.port = self.server.add_secure_port(address, self.credentials) if self.credentials else self.server.add_insecure_port(address)
        self.server.start()

    def stop(self) -> None:
        # Who is being served gets an answer.
        self.server.stop(grace=10).wait()

    def answer(self, request, context, take):
        self.calls.append(time.monotonic())
        assert dict(context.invocation_metadata())["authorization"] == "Bearer secret"
        assert context.time_remaining() < 10, "a call has a deadline"
        if self.turned_away is None:
            self.turned_away = request
            delay = error_details_pb2.RetryInfo()
            delay.retry_delay.FromSeconds(self.DELAY_S)
            status = status_pb2.Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="slow down")
            status.details.add().Pack(delay)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down")
        if len(self.calls) == 2:
            assert request == self.turned_away, "what was turned away comes again"
        return take(request)

    @property
    def endpoint(self) -> str:
        return f"grpcs://localhost:{self.port}" if self.credentials else f"http://127.0.0.1:{self.port}"

    def check(self) -> None:
        assert self.calls[1] - self.calls[0] >= self.DELAY_S, "it came again too early"


def values(of) -> dict:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}
