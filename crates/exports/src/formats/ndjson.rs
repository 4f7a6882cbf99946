//! Rows of the views, one object a line, each with the name of its view first. Findings come last.

use std::io::Write;

use gpuwhy_store::Cells;
use serde_json::{Map, Value, json};

use crate::{Export, ExportError, Format};

pub const FORMAT: Format =
    Format { name: "ndjson", read_by: "jq, DuckDB, any log pipeline", extension: "ndjson", is_of_stacks: false, write };

/// Views, the column that says when, and the one that says which process.
const VIEWS: &[(&str, &str, Option<&str>)] = &[
    ("cuda_events", "timestamp_ns", Some("pid")),
    ("call_stats", "bucket_ns", Some("pid")),
    ("nccl_events", "timestamp_ns", Some("pid")),
    ("nccl_replays", "timestamp_ns", Some("pid")),
    ("sched_events", "timestamp_ns", Some("pid")),
    ("thread_times", "bucket_ns", Some("pid")),
    ("kernel_events", "timestamp_ns", Some("pid")),
    ("io_events", "timestamp_ns", Some("pid")),
    ("tcp_events", "timestamp_ns", None),
    ("annotations", "timestamp_ns", None),
    ("sample_values", "at_ns", None),
];

fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let reading = export.asked.read(export.part)?;
    for (at, (view, time, process)) in VIEWS.iter().enumerate() {
        export.asked.progress(at as f64 / VIEWS.len() as f64, view);
        let [from, until, one, same] = reading.bounds();
        let (only, values) = match process {
            Some(pid) => (format!("AND (? IS NULL OR {pid} = ?)"), vec![from, until, one, same]),
            None => (String::new(), vec![from, until]),
        };
        let sql = format!("SELECT * FROM {view} WHERE {time} >= ? AND {time} < ? {only}");
        reading.trace.each(&sql, &values, |row| line(out, view, row))?;
    }
    for finding in &export.explanation()?.findings {
        serde_json::to_writer(&mut *out, &json!({"view": "findings", "finding": finding})).map_err(failed)?;
        writeln!(out)?;
    }
    export.asked.progress(1.0, "done");
    Ok(())
}

fn line(out: &mut dyn Write, view: &str, row: &Cells<'_>) -> Result<(), ExportError> {
    let mut object = Map::from_iter([("view".to_owned(), Value::from(view))]);
    for at in 0..row.len() {
        object.insert(row.name(at).to_owned(), row.value(at).to_json());
    }
    serde_json::to_writer(&mut *out, &object).map_err(failed)?;
    Ok(writeln!(out)?)
}

fn failed(error: serde_json::Error) -> ExportError {
    ExportError::Write(error.into())
}
