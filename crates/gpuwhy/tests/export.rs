//! `gpuwhy export`: what is in the trace is in the file, once and as the format wants it. The readers of others are asked in
//! `tests/peers`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gpuwhy_store::{Limits, Trace, Value as Cell};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use support::{gpuwhy, output, small_trace};
use tempfile::TempDir;

/// A recording of a real stall.
fn recorded() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("demo.db");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/demo.trace"), &file).unwrap();
    (directory, file)
}

fn number(file: &Path, sql: &str) -> usize {
    let answer = Trace::open_as_newest(file).unwrap().query(sql, &Limits::default()).unwrap();
    let Cell::Integer(number) = answer.rows[0][0] else { panic!("{sql}") };
    usize::try_from(number).unwrap()
}

#[track_caller]
fn exported(file: &Path, words: &[&str]) -> Vec<u8> {
    let out = file.with_extension("out");
    let _ = std::fs::remove_file(&out);
    let all = [&["export", file.to_str().unwrap(), "--out", out.to_str().unwrap()], words].concat();
    let (code, stdout, stderr) = output(gpuwhy(&all));
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    std::fs::read(out).unwrap()
}

#[test]
fn chrome_gets_every_call_and_wait_with_arrows_that_begin_and_end() {
    let (_directory, file) = recorded();
    let trace: Value = serde_json::from_slice(&exported(&file, &["--format", "chrome"])).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let slices = |category: &str| events.iter().filter(|event| event["cat"] == category).count();
    assert_eq!(slices("sync"), number(&file, "SELECT count(*) FROM cuda_events WHERE class = 'sync'"));
    assert_eq!(slices("launch"), number(&file, "SELECT count(*) FROM cuda_events WHERE class = 'launch'"));
    assert_eq!(slices("wait"), number(&file, "SELECT count(*) FROM sched_events WHERE blocked_ns > 0"));
    assert!(slices("finding") > 0);
    assert!(events.iter().all(|event| event["ph"] == "M" || event["ts"].as_f64().unwrap() >= 0.0));
    let arrows = |ph: &str| -> BTreeSet<String> {
        let of = events.iter().filter(|event| event["ph"] == ph && event["cat"] == "arrow");
        of.map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    let waits: BTreeSet<String> = arrows("f");
    assert!(!waits.is_empty() && waits.is_subset(&arrows("s")), "each that ends has begun");
    let named = events.iter().filter(|event| event["name"] == "thread_name").count();
    assert!(named >= number(&file, "SELECT count(*) FROM threads WHERE comm <> ''"));
    assert!(events.iter().all(|event| event["ph"] != "M" || event["args"]["name"] != ""));
}

#[test]
fn a_part_of_the_trace_is_all_that_is_exported() {
    let (_directory, file) = recorded();
    let lines = |words: &[&str]| exported(&file, words).iter().filter(|&&byte| byte == b'\n').count();
    let all = lines(&["--format", "ndjson"]);
    let part = lines(&["--format", "ndjson", "--since", "1s"]);
    let nobody = lines(&["--format", "ndjson", "--pid", "1"]);
    assert!(nobody < part && part < all, "{nobody} {part} {all}");
}

#[test]
fn lines_of_json_are_the_rows_of_the_views() {
    let (_directory, file) = recorded();
    let text = String::from_utf8(exported(&file, &["--format", "ndjson"])).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for view in ["cuda_events", "sched_events", "call_stats", "thread_times"] {
        let found = rows.iter().filter(|row| row["view"] == view).count();
        assert_eq!(found, number(&file, &format!("SELECT count(*) FROM {view}")), "{view}");
    }
    assert!(rows.iter().any(|row| row["view"] == "findings" && row["finding"]["cause"].is_string()));
}

#[test]
fn a_parquet_file_holds_the_rows_of_one_view() {
    let (_directory, file) = recorded();
    let rows = |words: &[&str]| {
        let written = exported(&file, &[&["--format", "parquet"], words].concat());
        assert!(written.starts_with(b"PAR1") && written.ends_with(b"PAR1"));
        let reader = SerializedFileReader::new(File::open(file.with_extension("out")).unwrap()).unwrap();
        // The recording is of an earlier version, and lacks columns.
        let view = words.iter().skip_while(|word| **word != "--view").nth(1).unwrap_or(&"cuda_events");
        let all = Trace::open_as_newest(&file).unwrap().query(&format!("SELECT * FROM {view}"), &Limits::default());
        let columns =
            reader.metadata().file_metadata().schema_descr().columns().iter().map(|one| one.name().to_owned());
        assert_eq!(columns.collect::<Vec<_>>(), all.unwrap().columns);
        usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap()
    };
    let all = number(&file, "SELECT count(*) FROM cuda_events");
    assert_eq!(rows(&[]), all);
    assert_eq!(rows(&["--view", "nccl_events"]), 0);
    assert_eq!(rows(&["--view", "sched_events"]), number(&file, "SELECT count(*) FROM sched_events"));
    let part = rows(&["--since", "1s"]);
    assert!(0 < part && part < all, "{part} of {all}");
    assert_eq!(rows(&["--pid", "1"]), 0);
}

#[test]
fn stacks_are_folded_drawn_and_profiled() {
    let (_directory, file) = recorded();
    let folded = String::from_utf8(exported(&file, &["--format", "folded", "--of", "waits"])).unwrap();
    assert!(folded.lines().all(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().is_ok()), "{folded}");
    let drawn = String::from_utf8(exported(&file, &["--format", "flamegraph", "--of", "waits"])).unwrap();
    assert!(drawn.starts_with("<?xml") && drawn.trim_end().ends_with("</svg>"));
    let innermost = folded.lines().next().unwrap().rsplit_once(' ').unwrap().0.rsplit(';').next().unwrap();
    assert!(drawn.contains(innermost.split([' ', '<', '&']).next().unwrap()), "{innermost}");
    let mut profile = Vec::new();
    flate2::read::GzDecoder::new(&exported(&file, &["--format", "pprof"])[..]).read_to_end(&mut profile).unwrap();
    assert!(profile.windows(7).any(|bytes| bytes == b"blocked"));
}

#[test]
fn perfetto_packets_fill_the_file_to_its_last_byte() {
    let (_directory, file) = recorded();
    let bytes = exported(&file, &["--format", "perfetto"]);
    let mut rest = &bytes[..];
    let mut packets = 0;
    while let Some((&tag, after)) = rest.split_first() {
        assert_eq!(tag, 0x0a, "a packet");
        let (mut length, mut shift, mut at) = (0usize, 0, 0);
        loop {
            length |= usize::from(after[at] & 0x7f) << shift;
            shift += 7;
            at += 1;
            if after[at - 1] & 0x80 == 0 {
                break;
            }
        }
        rest = &after[at + length..];
        packets += 1;
    }
    // Each call and each wait has a begin and an end.
    let slices = number(&file, "SELECT (SELECT count(*) FROM cuda_events) + (SELECT count(*) FROM sched_events)");
    assert!(packets > 2 * slices, "{packets} packets for {slices} slices");
    assert_eq!(bytes, exported(&file, &["--format", "perfetto"]), "the same trace gives the same file");
}

#[test]
fn without_a_name_the_file_is_named_after_the_trace_and_none_is_overwritten() {
    let (directory, file) = recorded();
    let words = ["export", file.to_str().unwrap(), "--format", "perfetto"];
    let (code, _, stderr) = output(gpuwhy(&words));
    assert_eq!(code, 0, "{stderr}");
    let made = directory.path().join("demo.pftrace");
    let size = made.metadata().unwrap().len();
    assert!(size > 1000);
    let (code, _, stderr) = output(gpuwhy(&words));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("is there already"), "{stderr}");
    assert_eq!(made.metadata().unwrap().len(), size);
    let (code, stdout, _) = output(gpuwhy(&["export", words[1], "--format", "chrome", "--out", "-"]));
    assert_eq!((code, stdout.starts_with('{')), (0, true));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left behind");
}

#[test]
fn what_cannot_be_exported_is_a_clear_error_and_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let [file, missing, other] = ["small.db", "missing.db", "other.db"].map(|name| directory.path().join(name));
    small_trace::write(&file);
    std::fs::write(&other, "not a trace").unwrap();
    let fails = |file: &Path, words: &[&str], code: i32, expected: &str| {
        let (found, _, stderr) = output(gpuwhy(&[&["export", file.to_str().unwrap()], words].concat()));
        assert_eq!(found, code, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    fails(&file, &["--format", "flamegraph"], 1, "the trace has no stacks of calls");
    fails(&file, &["--format", "pprof"], 1, "the trace has no stacks of any kind");
    fails(&file, &["--format", "perfetto", "--of", "waits"], 1, "--of is for formats of one kind of stacks");
    fails(&file, &["--format", "ndjson", "--view", "io_events"], 1, "--view is for formats of one view");
    fails(&file, &["--format", "parquet", "--view", "processes"], 2, "possible values");
    fails(&file, &["--format", "svg"], 2, "possible values");
    fails(&file, &[], 2, "--format");
    fails(&missing, &["--format", "chrome"], 1, "missing.db");
    fails(&other, &["--format", "chrome"], 1, "not a");
    let nowhere = directory.path().join("no/such/folder/out.json");
    fails(&file, &["--format", "chrome", "--out", nowhere.to_str().unwrap()], 1, "no/such/folder/out.json");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}
