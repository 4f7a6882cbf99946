"""OpenTelemetry's own messages against `gpuwhy trace --otlp`, over HTTP and over gRPC: a receiver that is down for a while gets every
point once, what it has in the end is what the trace has, and what a finding cites comes as spans that lead to each other.

    GPUWHY=binary tests/peers/otlp.py
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import grpc

from receivers import OverGrpc, OverHttp, Receiver, values
from waiting import PATIENCE_S, until

DEMO = "slow-worker-io"


def main() -> int:
    for receiver in OverHttp(), OverGrpc():
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            receiver.start()
            with traced(receiver, place) as said:
                until("numbers come", lambda: receiver.points)
                receiver.stop()
                demo = [os.environ["GPUWHY"], "demo", DEMO, "--out", str(place / "demo.db")]
                subprocess.run(demo, check=True, stdout=subprocess.DEVNULL)
                time.sleep(12)  # longer than two batches are apart
                receiver.start()
                until("a finding comes", lambda: any(cause(record) == "input-starved" for record in receiver.records))
            check(receiver, place / "trace.db", said)
            receiver.stop()
    over_tls()
    return 0


@contextmanager
def traced(receiver: Receiver, place: Path, variables: dict[str, str] = {}):
    command = [os.environ["GPUWHY"], "trace", "--live", "never", "--out", str(place / "trace.db"), "--otlp", receiver.endpoint]
    own = {"OTEL_RESOURCE_ATTRIBUTES": "k8s.node.name=gpu-7", **receiver.variables, **variables}
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **own})
    # Whoever writes there must not have to wait.
    said = []
    ready = threading.Event()
    threading.Thread(target=listen, args=(tracer, said, ready), daemon=True).start()
    try:
        assert ready.wait(PATIENCE_S), said
        yield said
        tracer.send_signal(signal.SIGINT)
        assert tracer.wait(PATIENCE_S) == 0, said
    finally:
        tracer.kill()
        tracer.wait()


def listen(tracer: subprocess.Popen, said: list[str], ready: threading.Event) -> None:
    for line in tracer.stderr:
        said.append(line)
        if "tracing " in line:
            ready.set()


def check(receiver: Receiver, trace: Path, said: list[str]) -> None:
    receiver.check()
    assert not [line for line in said if "not taken" in line], said
    twice = [point for point, times in receiver.points.items() if times > 1]
    assert not twice, twice[:5]
    resource = receiver.resource
    assert (resource["service.name"], resource["k8s.node.name"], resource["os.type"]) == ("gpuwhy", "gpu-7", "linux"), resource
    assert resource["host.name"] == os.uname().nodename and resource["service.instance.id"], resource
    record = next(record for record in receiver.records if cause(record) == "input-starved")
    assert record.event_name == "gpuwhy.finding" and record.body.string_value, record
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
        launches = check_launches(receiver, connection)
        links = check_spans(receiver, connection)
    print(f"over {receiver.name}: {len(receiver.points)} points of {receiver.batches} batches, each once; {launches:.0f} launches, as the"
          f" trace has; {len(receiver.spans)} spans with {links} links; {record.body.string_value}")


def check_launches(receiver: Receiver, trace: sqlite3.Connection) -> float:
    is_launch = lambda name, attributes: name == "gpuwhy_calls" and ("code.function.name", "cuLaunchKernel") in attributes
    launches = sum(number for key, number in receiver.last.items() if is_launch(*key))
    estimate, = trace.execute("SELECT sum(estimate) FROM call_counts JOIN ops ON ops.id = op_id WHERE name = 'cuLaunchKernel'").fetchone()
    assert launches == estimate, (launches, estimate)
    return launches


def check_spans(receiver: Receiver, trace: sqlite3.Connection) -> int:
    twice = [span for span, times in receiver.span_times.items() if times > 1]
    assert not twice, twice[:5]
    started, ended = trace.execute("SELECT min(started_ns), max(ended_ns) FROM sessions").fetchone()
    named, threads = set(), set()
    for span in receiver.spans.values():
        assert started <= span.start_time_unix_nano <= span.end_time_unix_nano <= ended, (started, ended, span)
        for link in span.links:
            target = receiver.spans[link.trace_id, link.span_id]
            threads.add((values(span).get("thread.id"), values(target).get("thread.id")))
        if not span.parent_span_id:
            assert span.name == values(span)["gpuwhy.cause"], span
            continue
        assert (span.trace_id, span.parent_span_id) in receiver.spans, span
        of_trace(span, trace)
        named.add(values(span)["gpuwhy.record"])
    assert len(named) == sum(1 for span in receiver.spans.values() if span.parent_span_id), "a record became several spans"
    for record in receiver.records:
        if cause(record) == "input-starved":
            assert receiver.spans[record.trace_id, record.span_id].name == "input-starved", record
    assert any(one != other for one, other in threads), "no link leads from one thread to another"
    return sum(len(span.links) for span in receiver.spans.values())


def of_trace(span, trace: sqlite3.Connection) -> None:
    """A span is the record that it names."""
    said = values(span)
    kind, id = said["gpuwhy.record"].split(":")
    row = trace.execute(f"SELECT timestamp_ns, duration_ns, pid, tid FROM {kind}_events WHERE timestamp_ns = ?", (int(id),)).fetchone()
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    assert row == (start, end - start, said["process.pid"], said["thread.id"]), (row, span)
    if kind in ("cuda", "sched"):
        split = [said[f"gpuwhy.{part}_ns"] for part in ("running", "runqueue", "blocked")]
        assert abs(sum(split) - (end - start)) <= 1000, span


def over_tls() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        certificate, key = place / "cert.pem", place / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
             "-keyout", key, "-out", certificate],
            check=True, stderr=subprocess.DEVNULL)
        receiver = OverGrpc(grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())]))
        receiver.start()
        with traced(receiver, place, {"SSL_CERT_FILE": str(certificate)}):
            until("numbers come over TLS", lambda: receiver.points)
        receiver.check()
        receiver.stop()
        print(f"over gRPC with TLS: {len(receiver.points)} points")


def cause(record) -> str | None:
    return values(record).get("gpuwhy.cause")


if __name__ == "__main__":
    sys.exit(main())
