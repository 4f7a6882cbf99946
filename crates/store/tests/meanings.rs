//! What functions mean is in the file. In files of earlier versions it follows from their names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};

use gpuwhy_apis::{Row, rows};
use gpuwhy_model::Layer;
use gpuwhy_store::{Limits, Options, Trace, Writer};
use gpuwhy_window::{Op, Scope};
use support::*;
use tempfile::TempDir;

fn window_ops(trace: &Trace) -> Vec<Op> {
    let mut ops: Vec<Op> = trace.window(&Scope::default()).unwrap().ops.into_values().collect();
    ops.sort_by(|one, other| (&one.name, one.layer).cmp(&(&other.name, other.layer)));
    ops
}

/// Every function of the call table, in the same order.
fn table_ops() -> Vec<Op> {
    let op = |row: Row| Op { name: row.api.name.to_owned(), layer: row.layer(), meaning: row.meaning() };
    let mut ops: Vec<Op> = rows().map(op).collect();
    ops.sort_by(|one, other| (&one.name, one.layer).cmp(&(&other.name, other.layer)));
    ops.dedup();
    ops
}

/// Version 4 knew neither collectives nor HIP.
fn ops_of_version_4() -> Vec<Op> {
    table_ops().into_iter().filter(|op| op.layer != Layer::Collective && !op.name.starts_with("hip")).collect()
}

/// A file of version 4 with every function of the call table that it had, as version 4 wrote them.
fn version_4() -> (TempDir, PathBuf) {
    let (directory, path) = temporary();
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-4.trace"), &path).unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("DELETE FROM ops", []).unwrap();
    for Op { name, layer, meaning } in ops_of_version_4() {
        let values = [name.as_str(), layer.as_str(), meaning.class.as_str()];
        file.execute("INSERT INTO ops (name, layer, class) VALUES (?, ?, ?)", values).unwrap();
    }
    (directory, path)
}

#[test]
fn what_functions_mean_is_read_back_as_it_was_written() {
    let (_directory, path) = temporary();
    let mut writer = Writer::open(&path, &session(), &Options::default()).unwrap();
    for row in rows() {
        writer.op(row.api.name, row.layer(), row.meaning(), row.api.runtime_name).unwrap();
    }
    writer.finish(&end()).unwrap();
    assert_eq!(window_ops(&Trace::open(&path).unwrap()), table_ops());
    let launches = lines(&path, "SELECT name FROM ops WHERE is_launch AND layer = 'driver' AND class = 'graph'");
    assert_eq!(launches, ["cuGraphLaunch", "hipGraphLaunch"]);
}

#[test]
fn functions_of_an_older_file_mean_what_the_call_table_says() {
    let (_directory, path) = version_4();
    assert_eq!(window_ops(&Trace::open(&path).unwrap()), ops_of_version_4());
    assert_eq!(window_ops(&Trace::open_as_newest(&path).unwrap()), ops_of_version_4());
    Writer::open(&path, &session(), &Options::default()).unwrap().finish(&end()).unwrap();
    assert_eq!(window_ops(&Trace::open(&path).unwrap()), ops_of_version_4());
}

#[test]
fn a_statement_finds_launches_in_an_older_file_as_in_a_new_one() {
    let (_directory, path) = version_4();
    let trace = Trace::open_as_newest(&path).unwrap();
    let sql = "SELECT layer, count(*) FROM ops WHERE is_launch GROUP BY layer ORDER BY layer";
    let found: Vec<String> = trace.query(sql, &Limits::default()).unwrap().rows.iter().map(|row| line(row)).collect();
    let count = |layer: Layer| ops_of_version_4().iter().filter(|op| op.layer == layer && op.meaning.is_launch).count();
    assert_eq!(found, [Layer::Driver, Layer::Runtime].map(|layer| format!("{layer} {}", count(layer))));
}
