//! Rows of the views, one object a line, each with the name of its view first. Findings come last.

use std::io::Write;

use gpuwhy_store::Cells;
use serde_json::{Map, Value, json};

use crate::views::VIEWS;
use crate::{Export, ExportError, Format, Holds, Out};

pub const FORMAT: Format = Format {
    name: "ndjson",
    read_by: "jq, DuckDB, any log pipeline",
    extension: "ndjson",
    holds: Holds::Everything,
    write,
};

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let reading = export.asked.read(export.part)?;
    for (at, view) in VIEWS.iter().enumerate() {
        export.asked.progress(at as f64 / VIEWS.len() as f64, view.name);
        view.each(&reading, |row| line(out, view.name, row))?;
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
