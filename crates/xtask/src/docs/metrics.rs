//! `docs/metrics.md` from the list of families.

use std::fmt::Write;

use anyhow::Result;
use gpuwhy_metrics::{FAMILIES, MOST_SERIES, OVERFLOW};

pub fn render() -> Result<Option<String>> {
    let mut text = format!(
        "# Metrics

`gpuwhy trace --prometheus 127.0.0.1:9464` serves these at `/metrics` while it traces, as Prometheus's classic text or,
for those who ask for it, as OpenMetrics. It keeps at most {MOST_SERIES} series. Counters that there is no room for are
summed up in one series of each metric, whose labels all say `{OVERFLOW}`, and `gpuwhy_metrics_overflowed_total` tells how
often that was so. Five minutes after a process has ended its series are forgotten. Names of kernels and stacks stay in the trace
file.

`gpuwhy trace --otlp http://127.0.0.1:4318` sends the same to an OpenTelemetry receiver every 10 seconds, as sums, gauges and
histograms since the trace began. There `pid` is `process.pid`, `comm` is `process.executable.name` and `function` is
`code.function.name`, and names have no `_total`. What is found comes as log records (`gpuwhy.finding`), once when it appears and
again when it becomes worse. `deploy/grafana.json` is a board for Grafana.

What keeps GPUs waiting is found in the last minute of the trace, every 15 seconds.

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
