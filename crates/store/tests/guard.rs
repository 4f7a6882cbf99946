//! Anybody's SQL reads, and does nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gpuwhy_store::{Answer, Limits, QueryError, Trace, Truncation, Value};
use proptest::prelude::*;
use support::*;
use tempfile::TempDir;

struct Finished {
    directory: TempDir,
    bytes: Vec<u8>,
}

/// One finished trace for all tests of this file.
static FINISHED: LazyLock<Finished> = LazyLock::new(|| {
    let (directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let mut calls: Vec<_> = (0..1000).map(|at| cast.call(at * 1000)).collect();
    writer.calls(&mut calls).unwrap();
    writer.finish(&end()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    Finished { directory, bytes }
});

fn finished() -> std::path::PathBuf {
    FINISHED.directory.path().join("trace.db")
}

const SHORT: Limits = Limits { time: Duration::from_millis(300), rows: 100, bytes: 100_000 };

fn ask(sql: &str) -> Result<Answer, QueryError> {
    Trace::open(finished()).unwrap().query(sql, &SHORT)
}

fn is_untouched() -> bool {
    let entries = std::fs::read_dir(FINISHED.directory.path()).unwrap().count();
    entries == 1 && std::fs::read(finished()).unwrap() == FINISHED.bytes
}

#[test]
fn statements_that_do_more_than_read_are_refused() {
    let outside = FINISHED.directory.path().join("outside.db");
    let attach = format!("ATTACH '{}' AS other", outside.display());
    let vacuum = format!("VACUUM INTO '{}'", outside.display());
    let write = format!("SELECT writefile('{}', 'x')", outside.display());
    let hostile = [
        "INSERT INTO calls VALUES (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)",
        "UPDATE sessions SET host = 'x'",
        "DELETE FROM calls",
        "DELETE FROM calls RETURNING *",
        "REPLACE INTO modules VALUES (1, 'x', 1)",
        "WITH x AS (SELECT 1) DELETE FROM calls",
        "EXPLAIN DELETE FROM calls",
        "/* SELECT */ DROP TABLE calls",
        "-- SELECT\nDROP VIEW cuda_events",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "CREATE TEMP TABLE t AS SELECT * FROM calls",
        "CREATE VIRTUAL TABLE temp.t USING fts5(x)",
        "CREATE TRIGGER t AFTER INSERT ON calls BEGIN SELECT 1; END",
        "ALTER TABLE calls RENAME TO x",
        "REINDEX",
        "ANALYZE",
        "VACUUM",
        &vacuum,
        &attach,
        "DETACH main",
        "BEGIN",
        "BEGIN EXCLUSIVE",
        "SAVEPOINT s",
        "PRAGMA user_version = 9",
        "PRAGMA writable_schema = ON",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = 0",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA temp_store_directory = '/tmp'",
        "SELECT * FROM pragma_journal_mode",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT fts3_tokenizer('simple')",
        &write,
    ];
    for sql in hostile {
        let error = ask(sql).expect_err(sql);
        let missing = error.to_string().contains("no such");
        assert!(matches!(error, QueryError::NotReadOnly { .. }) || missing, "{sql}: {error}");
    }
    assert!(!outside.exists());
    assert!(is_untouched());
}

#[test]
fn only_one_statement_is_taken() {
    for sql in ["SELECT 1; SELECT 2", "SELECT 1; DELETE FROM calls", "SELECT 1;; garbage", "SELECT 1; \u{0}"] {
        let error = ask(sql).expect_err(sql);
        let fits = matches!(error, QueryError::SeveralStatements | QueryError::Syntax { .. });
        assert!(fits, "{sql}: {error}");
    }
    let many = "SELECT 1;".repeat(10_000);
    assert!(matches!(ask(&many), Err(QueryError::SeveralStatements)));
    for sql in ["", "  ", ";", "-- nothing", "/* nothing */;"] {
        assert!(matches!(ask(sql), Err(QueryError::Empty)), "{sql}");
    }
    for sql in ["SELECT 1;", "SELECT 1; -- done", " /* first */ SELECT 1 ;\n; "] {
        assert_eq!(ask(sql).unwrap().rows, [[Value::Integer(1)]], "{sql}");
    }
}

#[test]
fn a_query_without_end_is_stopped_in_time() {
    let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n";
    let wide = "SELECT COUNT(*) FROM calls a, calls b, calls c, calls d";
    for sql in [endless, wide] {
        let begun = Instant::now();
        let error = ask(sql).expect_err(sql);
        assert!(matches!(error, QueryError::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_query_that_hoards_is_stopped_before_it_hurts() {
    let limits = Limits { time: Duration::from_secs(60), ..SHORT };
    let hoard = "WITH RECURSIVE n(x, y) AS (SELECT 1, zeroblob(100000) UNION ALL SELECT x + 1, zeroblob(100000 + x)
        FROM n) SELECT COUNT(*) FROM (SELECT DISTINCT y FROM n)";
    let error = Trace::open(finished()).unwrap().query(hoard, &limits).expect_err("no end");
    assert!(matches!(error, QueryError::TooMuchMemory), "{error}");
}

#[test]
fn values_of_absurd_size_are_refused() {
    for sql in [
        "SELECT zeroblob(1000000000000)",
        "SELECT zeroblob(2000000)",
        "SELECT randomblob(2000000000)",
        "SELECT printf('%2000000000d', 1)",
        "SELECT printf('%.*c', 2000000000, 'x')",
        "SELECT hex(zeroblob(900000))",
        "SELECT replace(hex(zeroblob(10000)), '0', hex(zeroblob(10000)))",
    ] {
        match ask(sql) {
            Err(error) => assert!(matches!(error, QueryError::TooBig), "{sql}: {error}"),
            Ok(answer) => assert!(answer.rows.iter().flatten().all(|value| *value == Value::Null), "{sql}"),
        }
    }
    assert!(ask(&format!("SELECT {}1", "-".repeat(200_000))).is_err());
    assert!(ask(&format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000))).is_err());
    assert!(ask(&vec!["SELECT 1"; 5_000].join(" UNION ALL ")).is_err());
}

#[test]
fn long_answers_are_cut_and_say_so() {
    let many = ask("SELECT id, comm FROM cuda_events").unwrap();
    assert_eq!((many.rows.len(), many.truncated), (100, Some(Truncation::Rows)));
    let large = ask("SELECT hex(zeroblob(5000)) FROM calls").unwrap();
    assert_eq!(large.truncated, Some(Truncation::Bytes));
    assert!(large.rows.len() < 11);
    let all = ask("SELECT id FROM cuda_events LIMIT 100").unwrap();
    assert_eq!((all.rows.len(), all.truncated), (100, None));
}

#[test]
fn harmless_questions_about_the_file_are_answered() {
    assert!(!ask("PRAGMA table_info(calls)").unwrap().rows.is_empty());
    assert!(!ask("SELECT name FROM pragma_table_info('cuda_events')").unwrap().rows.is_empty());
    assert!(!ask("SELECT sql FROM sqlite_schema").unwrap().rows.is_empty());
    assert!(!ask("SELECT description FROM schema_columns").unwrap().rows.is_empty());
    assert!(!ask("EXPLAIN QUERY PLAN SELECT * FROM cuda_events").unwrap().rows.is_empty());
    assert_eq!(ask("VALUES (1)").unwrap().rows, [[Value::Integer(1)]]);
    assert_eq!(
        ask("SELECT sqrt(16), sqrt(-1), sqrt(NULL)").unwrap().rows,
        [[Value::Real(4.0), Value::Null, Value::Null]]
    );
}

#[test]
fn mistakes_are_named() {
    let error = ask("SELECT duration FROM cuda_events").expect_err("no such column");
    assert!(error.to_string().contains("no such column: duration"), "{error}");
    assert!(matches!(error, QueryError::Syntax { .. }));
}

#[test]
fn a_time_range_is_found_without_reading_all_calls() {
    let plan = ask("EXPLAIN QUERY PLAN SELECT * FROM cuda_events WHERE timestamp_ns BETWEEN 1 AND 2 AND pid = 3");
    let plan: Vec<String> = plan.unwrap().rows.iter().map(|row| line(row)).collect();
    assert!(plan[0].contains("SEARCH calls USING INTEGER PRIMARY KEY"), "{plan:?}");
}

fn sql_words() -> impl Strategy<Value = String> {
    let words = [
        "SELECT",
        "*",
        "FROM",
        "cuda_events",
        "calls",
        "WHERE",
        "1",
        "=",
        "DELETE",
        "INSERT INTO",
        "UPDATE",
        "SET",
        "DROP TABLE",
        "ATTACH",
        "PRAGMA",
        "user_version",
        "VACUUM",
        ";",
        "--",
        "/*",
        "*/",
        "'",
        "\"",
        "(",
        ")",
        ",",
        "WITH RECURSIVE",
        "x",
        "AS",
        "UNION ALL",
        "x'00'",
        "NULL",
        "9e999",
        "percentile_ns",
        "merge_histograms",
        "sqrt",
        "json_each",
        "histogram",
        "BEGIN",
        "COMMIT",
        "CREATE VIEW",
        "temp.",
        "main.",
        "?",
        "LIMIT 5",
        "\u{0}",
        "\u{1F980}",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..20).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn no_text_panics_or_changes_the_file(sql in prop_oneof![any::<String>(), sql_words()]) {
        let _ = ask(&sql);
        prop_assert!(is_untouched());
    }
}

#[test]
fn parameters_are_values() {
    let trace = Trace::open(finished()).unwrap();
    let values = [Value::Text("' OR 1".into()), Value::Integer(2)];
    let answer = trace.query_with("SELECT ?, ?", &values, &SHORT).unwrap();
    assert_eq!(answer.rows, [values]);
    assert_eq!(trace.path(), Path::new(&finished()));
}
