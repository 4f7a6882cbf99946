//! A file with a size cap stays under it, forgets the oldest first and says what it forgot.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;

use gpuwhy_model::{AgentUsage, Call, CallStats, Histogram, LossReason, Rung, RungChange, SessionEnd};
use gpuwhy_store::{Limits, Options, StoreError, Trace, Writer};
use support::capped::*;
use support::*;

fn write_batches(writer: &mut Writer, path: &Path, cast: &Cast, batches: u64) {
    for batch in 0..batches {
        // Every handle is new, so that the dictionary of shapes has to be forgotten, too.
        let call = |at: u64| Call { handle: Some(batch * 20 + at % 20), ..cast.call((batch * 1000 + at) * 5_000) };
        writer.calls(&mut (0..1000).map(call).collect::<Vec<_>>()).unwrap();
        writer.commit(START_NS + batch).unwrap();
        assert!(disk_bytes(path) <= CAP, "{} bytes after batch {batch}", disk_bytes(path));
    }
}

#[test]
fn the_oldest_calls_make_room_and_are_counted() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    write_batches(&mut writer, &path, &cast, 300);
    writer.finish(&SessionEnd { seen: 300_000, ..end() }).unwrap();
    assert_under(&path, CAP);
    let stored = number(&path, "SELECT COUNT(*) FROM cuda_events");
    assert!(stored > 20_000, "{stored} calls in {CAP} bytes");
    assert_eq!(number(&path, "SELECT stored FROM sessions"), stored);
    assert_eq!(number(&path, "SELECT count FROM losses WHERE reason = 'expired'"), 300_000 - stored);
    let newest = START_NS as i64 + 299_999 * 5_000;
    assert_eq!(number(&path, "SELECT MAX(id) FROM cuda_events"), newest);
    assert_eq!(number(&path, "SELECT MIN(id) FROM cuda_events"), newest - (stored - 1) * 5_000);
    assert!(number(&path, "SELECT COUNT(*) FROM shapes") < 25_000);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn expired_calls_count_for_the_session_that_made_them() {
    let (_directory, path) = temporary();
    let mut first = capped(&path, CAP);
    let cast = Cast::new(&mut first);
    write_batches(&mut first, &path, &cast, 30);
    first.finish(&end()).unwrap();
    let mut second = capped(&path, CAP);
    let cast = Cast::new(&mut second);
    for batch in 0..100 {
        let calls = (0..1000).map(|at| cast.call(1_000_000_000 + (batch * 1000 + at) * 5_000));
        second.calls(&mut calls.collect::<Vec<_>>()).unwrap();
        second.commit(START_NS).unwrap();
    }
    second.finish(&end()).unwrap();
    let sql = "SELECT stored + IFNULL(count, 0) FROM sessions LEFT JOIN losses ON session_id = id ORDER BY id";
    assert_eq!(lines(&path, sql), ["30000", "100000"]);
    assert_eq!(lines(&path, "SELECT stored FROM sessions WHERE id = 1"), ["0"]);
    assert_under(&path, CAP);
}

fn second_of_stats(cast: &Cast, second: u64) -> Vec<CallStats> {
    let mut histogram = Histogram::default();
    (0..200).for_each(|index| histogram.add(index, 1_000_000));
    let bucket_ns = START_NS + second * 1_000_000_000;
    let stats = |op| CallStats { histogram: histogram.clone(), ..CallStats::alike(bucket_ns, cast.thread, op, 1, 1) };
    [cast.launch, cast.alloc].map(stats).to_vec()
}

#[test]
fn sums_outlive_calls_but_not_the_cap() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    for second in 0..1000 {
        let calls = (0..200).map(|at| cast.call(second * 1_000_000_000 + at * 5_000));
        writer.calls(&mut calls.collect::<Vec<_>>()).unwrap();
        writer.stats(&second_of_stats(&cast, second)).unwrap();
        writer.commit(START_NS).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    let seconds = number(&path, "SELECT COUNT(DISTINCT bucket_ns) FROM call_stats");
    assert!((40..1000).contains(&seconds), "{seconds}");
    assert!(number(&path, "SELECT COUNT(*) FROM cuda_events") > 5_000);
}

#[test]
fn what_tracing_cost_is_forgotten_oldest_first_under_the_cap() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    let seconds = 3000;
    for second in 0..seconds {
        let at_ns = START_NS + second * 1_000_000_000;
        let usage = AgentUsage { bucket_ns: at_ns, wall_ns: 1_000_000_000, cpu_ns: 5, hooks_ns: 6, call_program_ns: 7 };
        writer.agent_usage(&usage).unwrap();
        let change = RungChange {
            at_ns,
            process: cast.process,
            op: cast.launch,
            rung: Rung::Bursts,
            fraction: 0.1,
            reason: "3 % of the thread's time is over the budget of 1 %. ".repeat(20),
        };
        writer.rung_change(&change).unwrap();
        writer.commit(at_ns).unwrap();
        assert!(disk_bytes(&path) <= CAP, "{} bytes after second {second}", disk_bytes(&path));
    }
    writer.finish(&end()).unwrap();
    for (table, time) in [("rungs", "at_ns"), ("agent_usage", "bucket_ns")] {
        let kept = number(&path, &format!("SELECT COUNT(*) FROM {table}"));
        assert!((100..seconds as i64).contains(&kept), "{kept} rows in {table}");
        let newest = number(&path, &format!("SELECT MAX({time}) FROM {table}"));
        assert_eq!(newest, START_NS as i64 + (seconds as i64 - 1) * 1_000_000_000, "{table}");
    }
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn how_an_earlier_session_was_watched_goes_with_its_names() {
    let (_directory, path) = temporary();
    let session = gpuwhy_model::Session { calibrations: vec![calibration("counted call", 210.5)], ..session() };
    let mut first = Writer::open(&path, &session, &Options { max_size: Some(CAP) }).unwrap();
    let cast = Cast::new(&mut first);
    let change = RungChange {
        // Later than anything the second session writes, so that its age does not expire it.
        at_ns: START_NS + 10_000_000_000_000,
        process: cast.process,
        op: cast.launch,
        rung: Rung::SlowOnly,
        fraction: 1.0,
        reason: "over budget".into(),
    };
    first.rung_change(&change).unwrap();
    first.finish(&end()).unwrap();
    let mut second = capped(&path, CAP);
    let cast = Cast::new(&mut second);
    for second_at in 10..1000 {
        second.stats(&second_of_stats(&cast, second_at)).unwrap();
        second.commit(START_NS + second_at * 1_000_000_000).unwrap();
    }
    second.finish(&end()).unwrap();
    for table in ["processes", "rung_changes", "calibrations"] {
        assert_eq!(number(&path, &format!("SELECT COUNT(*) FROM {table} WHERE session_id = 1")), 0, "{table}");
    }
    assert_eq!(number(&path, "SELECT COUNT(*) FROM processes WHERE session_id = 2"), 1);
}

#[test]
fn a_reader_that_stays_is_reported_and_the_cap_holds() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    write_batches(&mut writer, &path, &cast, 1);
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT COUNT(*) FROM calls", [], |_| Ok(())).unwrap();
    let mut refused = 0;
    for batch in 1..60 {
        let calls = (0..1000).map(|at| cast.call((batch * 1000 + at) * 5_000));
        match writer.calls(&mut calls.collect::<Vec<_>>()).and_then(|()| writer.commit(START_NS)) {
            Err(StoreError::ReaderInTheWay { .. }) => refused += writer.take_not_written(),
            other => other.unwrap(),
        }
        assert_under(&path, CAP);
    }
    assert!(refused > 0);
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    let mut losses = gpuwhy_model::Losses::default();
    losses.add(LossReason::NotWritten, refused);
    writer.finish(&SessionEnd { seen: 60_000, losses, ..end() }).unwrap();
    assert_eq!(number(&path, "SELECT stored + (SELECT SUM(count) FROM losses) FROM sessions"), 60_000);
    assert_eq!(number(&path, "SELECT stored - (SELECT COUNT(*) FROM calls) FROM sessions"), 0);
}

#[test]
fn a_cap_that_cannot_be_kept_is_refused() {
    let (_directory, path) = temporary();
    let small = Writer::open(&path, &session(), &Options { max_size: Some(1000) });
    assert!(matches!(small, Err(StoreError::CapTooSmall { .. })));
    assert!(!path.exists());
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.calls(&mut (0..100_000).map(|at| cast.call(at * 5_000)).collect::<Vec<_>>()).unwrap();
    writer.finish(&end()).unwrap();
    let late = Writer::open(&path, &session(), &Options { max_size: Some(CAP) });
    assert!(matches!(late, Err(StoreError::OverCap { .. })));
    let rows = Trace::open(&path).unwrap().query("SELECT COUNT(*) FROM sessions", &Limits::default()).unwrap().rows;
    assert_eq!(line(&rows[0]), "1");
}
