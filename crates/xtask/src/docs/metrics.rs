//! `docs/metrics.md` from the list of families.

use std::fmt::Write;

use anyhow::Result;
use gpuwhy_metrics::{FAMILIES, MOST_SERIES, OVERFLOW};

pub fn render() -> Result<Option<String>> {
    let mut text = format!(
        "# Metrics

`gpuwhy trace --prometheus 127.0.0.1:9464` serves these at `/metrics` while it traces, as Prometheus's classic text or, for
those who ask for it, as OpenMetrics or Prometheus's protobuf. It keeps at most {MOST_SERIES} series. Counters that there is no room for are
summed up in one series of each metric, whose labels all say `{OVERFLOW}`, and `gpuwhy_metrics_overflowed_total` tells how
often that was so. Five minutes after a process has ended its series are forgotten. Names of kernels and stacks stay in the trace
file.

In OpenMetrics and protobuf each bucket of durations comes with an exemplar, the slowest call of the last minute that fell into it:
its `pid`, its `tid`, and `call`, its place in the trace file. `cuda:1790000000000000000` is the row of `cuda_events` with that
`timestamp_ns`, as findings cite it. Prometheus keeps exemplars with `--enable-feature=exemplar-storage`.

In protobuf, durations are a native histogram as well as classic buckets. Prometheus takes it with
`--enable-feature=native-histograms`: `histogram_quantile(0.99, sum(rate(gpuwhy_call_duration_seconds[5m])))`. The trace
counts in eight buckets of equal width for each power of two nanoseconds. No schema of native histograms has these bounds, so each of
them is told as the bucket of schema 5 (32 for each power of two) that its middle is in. No two are mixed up, counts and sums are
exact, and a quantile is off from that of the trace file by 2.2 % at most. What takes less than 128 ns is in the zero bucket.

`gpuwhy trace --otlp http://127.0.0.1:4318` sends the same to an OpenTelemetry receiver every 10 seconds, as sums, gauges and
histograms since the trace began. There `pid` is `process.pid`, `comm` is `process.executable.name` and `function` is
`code.function.name`, and names have no `_total`. What is found comes as log records (`gpuwhy.finding`) with
[spans](running.md#to-an-opentelemetry-receiver), once when it appears and again when it becomes worse. `deploy/grafana.json` is a board
for Grafana.

What keeps GPUs waiting, and how late ranks come, is found in the last minute of the trace, every 15 seconds. A `communicator` is
called by its `comm_id_hash` in hexadecimal digits, equal on all ranks. It is empty for one from before the trace, and so is `rank` where
not all ranks that split a communicator are on this host.

| metric | kind | labels | what it is |
|---|---|---|---|
"
    );
    for family in FAMILIES {
        let kind = family.kind.as_str();
        let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        writeln!(text, "| `{}` | {kind} | {labels} | {} |", family.name, family.help)?;
    }
    Ok(Some(text))
}
