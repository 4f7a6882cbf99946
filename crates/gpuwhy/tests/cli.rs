//! The command line: what it says about itself, and what it answers about a trace.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests end that way")]

mod support;

use std::path::PathBuf;

use support::{gpuwhy, output, small_trace};
use tempfile::TempDir;

fn trace() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gpuwhy-test.db");
    small_trace::write(&file);
    (dir, file)
}

/// What a successful command prints.
fn answer(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = output(gpuwhy(arguments));
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

#[test]
fn help_names_what_a_user_needs() {
    for (arguments, words) in [
        (vec!["--help"], &["Why is my GPU waiting?", "check", "trace", "query"][..]),
        (vec!["check", "--help"], &["--json", "--exit-code", "Exit with 3"]),
        (
            vec!["trace", "--help"],
            &["--pid", "--user", "--duration", "--out", "--max-size", "--json", "its exit code is passed on"],
        ),
        (vec!["query", "--help"], &["[FILE] [SQL]", "--db", "--since", "--op", "--min-duration", "--csv", "--timeout"]),
    ] {
        let help = answer(&arguments);
        words.iter().for_each(|word| assert!(help.contains(word), "{word:?} is not in {help}"));
        assert!(!help.contains('\u{1b}'), "colour is for terminals");
    }
    assert_eq!(answer(&["--version"]), format!("gpuwhy {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_told_apart_from_a_failure() {
    for wrong in [&[][..], &["tarce"], &["query", "a", "b", "c"], &["query", "--json", "--csv"], &["trace", "sleep"]] {
        let (code, stdout, stderr) = output(gpuwhy(wrong));
        assert_eq!((code, stdout.as_str()), (2, ""), "{wrong:?}");
        assert!(stderr.contains("Usage: "), "{stderr}");
    }
    let (code, stdout, stderr) = output(gpuwhy(&["query", "/no/such/file.db"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert_eq!(
        stderr,
        "error: there is no file /no/such/file.db\nhint: name a file that `gpuwhy trace --out FILE` wrote\n"
    );
}

#[test]
fn an_answer_is_a_table_json_or_csv() {
    let (_dir, file) = trace();
    let sql = "SELECT op, duration_ns, comm, stream, 1.5 AS x FROM cuda_events WHERE ret_code <> 0";
    let query = |format: &[&str]| answer(&[&["query", file.to_str().unwrap(), sql], format].concat());
    let table = query(&[]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["op", "duration_ns", "comm", "stream", "x"]);
    assert_eq!(lines[1], ["cuMemAlloc", "2000000", "say", "\"hi\",", "\\u{1b}[31mred", "1.5"]);
    assert_eq!(lines.len(), 2);
    let json: serde_json::Value = serde_json::from_str(&query(&["--json"])).unwrap();
    let expected = serde_json::json!([
        {"op": "cuMemAlloc", "duration_ns": 2_000_000, "comm": "say \"hi\", \u{1b}[31mred", "stream": null, "x": 1.5}
    ]);
    assert_eq!(json, expected);
    let csv = "op,duration_ns,comm,stream,x\ncuMemAlloc,2000000,\"say \"\"hi\"\", \u{1b}[31mred\",,1.5\n";
    assert_eq!(query(&["--csv"]), csv);
}

#[test]
fn no_row_is_an_answer_too() {
    let (_dir, file) = trace();
    let query = |format: &[&str]| {
        answer(&[&["query", file.to_str().unwrap(), "SELECT op FROM cuda_events WHERE 0"], format].concat())
    };
    assert_eq!(query(&[]).trim(), "op");
    assert_eq!(query(&["--csv"]), "op\n");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&query(&["--json"])).unwrap(), serde_json::json!([]));
}

/// Seconds from the start of the trace at which the calls of an answer were made.
fn seconds(arguments: &[&str]) -> Vec<u64> {
    let rows: Vec<serde_json::Value> = serde_json::from_str(&answer(&[arguments, &["--json"]].concat())).unwrap();
    rows.iter().map(|row| (row["timestamp_ns"].as_u64().unwrap() - small_trace::START_NS) / 1_000_000_000).collect()
}

#[test]
fn filters_choose_calls_by_time_function_process_and_length() {
    let (_dir, file) = trace();
    let with = |filters: &[&str]| seconds(&[&["query", "--db", file.to_str().unwrap()], filters].concat());
    assert_eq!(with(&[]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(with(&["--since", "3s"]), [3, 4, 5]);
    assert_eq!(with(&["--since", "2h"]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(with(&["--op", "cuLaunchKernel"]), [0, 1, 2, 3, 4]);
    assert_eq!(with(&["--op", "cudaLaunchKernel"]), [1, 3]);
    assert_eq!(with(&["--op", "cudaMalloc"]), [5]);
    assert_eq!(with(&["--op", "cuMemAlloc_v2"]), [5]);
    assert_eq!(with(&["--op", "cuNothing"]), [0; 0]);
    assert_eq!(with(&["--pid", "100", "--tid", "101"]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(with(&["--pid", "7"]), [0; 0]);
    assert_eq!(with(&["--min-duration", "1ms"]), [5]);
    assert_eq!(with(&["--since", "4s", "--op", "cuLaunchKernel"]), [2, 3, 4]);
}

#[test]
fn a_file_and_a_statement_can_be_named_in_several_ways() {
    let (dir, file) = trace();
    let file = file.to_str().unwrap();
    let sql = "SELECT count(*) AS calls FROM cuda_events";
    let six = "calls\n6\n";
    assert_eq!(answer(&["query", file, sql, "--csv"]), six);
    assert_eq!(answer(&["query", "--db", file, sql, "--csv"]), six);
    assert_eq!(seconds(&["query", file]).len(), 6);

    // The newest of a folder, whether with a statement or without.
    let here = |arguments: &[&str]| {
        let mut command = gpuwhy(arguments);
        command.current_dir(dir.path());
        output(command)
    };
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let older = std::fs::File::create(dir.path().join("gpuwhy-older.db")).unwrap();
    older.set_modified(long_ago).unwrap();
    assert_eq!(here(&["query", sql, "--csv"]).1, six);
    assert_eq!(here(&["query", "--csv"]).1.lines().count(), 7);

    for wrong in [&["query", "--db", file, file, sql][..], &["query", file, sql, "--op", "cuLaunchKernel"]] {
        let (code, _, stderr) = output(gpuwhy(wrong));
        assert_eq!(code, 1, "{wrong:?}");
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
    let empty = tempfile::tempdir().unwrap();
    let mut command = gpuwhy(&["query", sql]);
    command.current_dir(empty.path());
    let (code, _, stderr) = output(command);
    assert_eq!(code, 1);
    assert!(stderr.contains("error: no trace is named and there is no gpuwhy-*.db here"), "{stderr}");
}

#[test]
fn a_cut_answer_says_so_on_stderr() {
    let (_dir, file) = trace();
    let (code, stdout, stderr) = output(gpuwhy(&["query", "--db", file.to_str().unwrap(), "--limit", "2", "--csv"]));
    assert_eq!((code, stdout.lines().count()), (0, 3));
    assert_eq!(stderr, "there are more rows; raise --limit to see them\n");
}

#[test]
fn the_published_queries_run_as_they_stand() {
    const PUBLISHED: [(&str, usize); 4] = [
        ("SELECT * FROM cuda_events WHERE duration_ns > 1000000 LIMIT 20;", 1),
        ("SELECT op, rank, nranks, duration_ns/1e6 AS ms FROM nccl_events ORDER BY duration_ns DESC LIMIT 20;", 0),
        ("SELECT COUNT(*) FROM tcp_events WHERE event = 'tcp_retransmit_skb';", 1),
        (
            "WITH slow_collectives AS (
  SELECT timestamp_ns, duration_ns, rank, nranks, comm_id_hash, pid FROM nccl_events
   WHERE op = 'ALL_REDUCE' AND duration_ns > 50000000)
SELECT s.rank, s.duration_ns/1e6 AS ms, COUNT(t.timestamp_ns) AS retransmits_in_window
  FROM slow_collectives s LEFT JOIN tcp_events t
    ON t.timestamp_ns BETWEEN s.timestamp_ns AND s.timestamp_ns + s.duration_ns
   AND t.event = 'tcp_retransmit_skb'
 GROUP BY s.rank, s.duration_ns, s.timestamp_ns ORDER BY ms DESC LIMIT 20;",
            0,
        ),
    ];
    let (_dir, file) = trace();
    for (sql, rows) in PUBLISHED {
        let csv = answer(&["query", file.to_str().unwrap(), sql, "--csv"]);
        assert_eq!(csv.lines().count(), 1 + rows, "{sql}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (_dir, file) = trace();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT i FROM n";
    let pipe =
        format!("{} query {} '{many}' --limit 100000 --csv | head -1", env!("CARGO_BIN_EXE_gpuwhy"), file.display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &pipe]);
    assert_eq!(output(command), (0, "i\n".to_owned(), String::new()));
}
