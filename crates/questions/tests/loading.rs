//! From a file to an explanation: what a tracer writes is what is explained.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../analysis/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use gpuwhy_analysis::explain;
use gpuwhy_model::{CallStats, Process, SessionEnd, TargetKind, WaitReason};
use gpuwhy_store::{Options, Trace, Writer};
use gpuwhy_window::{CallSecond, Scope, Window};
use support::*;
use tempfile::TempDir;

/// Writes a window as a tracer would: ids are given out anew, in the same order.
fn written(window: &Window) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    let session = gpuwhy_model::Session { started_ns: START_NS, ..Default::default() };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    write_names(&mut writer, window);
    writer.calls(&mut window.calls.rows.clone()).unwrap();
    writer.stretches(&window.stretches.rows).unwrap();
    writer.kernel_work(&window.kernel_work.rows).unwrap();
    writer.io_requests(&window.io_requests.rows).unwrap();
    writer.io_usage(&window.io_usage).unwrap();
    let times: Vec<_> = window.thread_sums.iter().map(|sum| sum.times.clone()).collect();
    writer.thread_times(&times).unwrap();
    writer.stats(&stats(window)).unwrap();
    let life: Vec<_> = window.life_on(0).cloned().collect();
    writer.life(&life).unwrap();
    writer.tcp_events(&window.tcp_events).unwrap();
    let end = SessionEnd { ended_ns: window.to_ns, reason: "finished".into(), ..SessionEnd::default() };
    writer.finish(&end).unwrap();
    (directory, path)
}

fn write_names(writer: &mut Writer, window: &Window) {
    for (id, op) in &window.ops {
        assert_eq!(writer.op(&op.name, op.layer, op.meaning, None).unwrap().0, id.0 + 1);
    }
    for (id, path) in &window.modules {
        assert_eq!(writer.module(path, false).unwrap(), *id);
    }
    for (id, process) in &window.processes {
        assert_eq!(writer.process(process).unwrap(), *id);
    }
    for (id, thread) in &window.threads {
        assert_eq!(writer.thread(thread.process, thread.tid, &thread.comm).unwrap(), *id);
    }
    for (id, target) in &window.targets {
        assert_eq!(writer.target(target).unwrap(), *id);
    }
}

/// One bucket a second for each thread and function.
fn stats(window: &Window) -> Vec<CallStats> {
    let of = |second: &CallSecond| {
        let sum = window.call_sums.iter().find(|sum| sum.thread == second.thread && sum.op == second.op).unwrap();
        CallStats {
            bucket_ns: second.bucket_ns,
            thread: second.thread,
            op: second.op,
            count: second.calls,
            sum_ns: second.sum_ns,
            min_ns: 0,
            max_ns: second.max_ns,
            runqueue_ns: 0,
            blocked_ns: second.calls * sum.blocked_ns / sum.calls,
            bytes: second.calls * sum.bytes / sum.calls,
            errors: second.errors,
            histogram: sum.histogram.clone(),
            fraction: 1.0,
            estimate: second.calls,
            variance: 0.0,
        }
    };
    window.call_seconds.iter().map(of).collect()
}

/// The writer counts functions from one on.
fn with_ids_of_a_file(mut window: Window) -> Window {
    let next = |op: &mut gpuwhy_model::OpId| op.0 += 1;
    window.calls.rows.iter_mut().for_each(|call| next(&mut call.op));
    window.call_seconds.iter_mut().for_each(|second| next(&mut second.op));
    window.call_sums.iter_mut().for_each(|sum| next(&mut sum.op));
    window.stretches.rows.iter_mut().filter_map(|row| row.op.as_mut()).for_each(next);
    window.kernel_work.rows.iter_mut().filter_map(|row| row.op.as_mut()).for_each(next);
    window
}

fn load(path: &Path, scope: &Scope) -> Window {
    Trace::open(path).unwrap().window(scope).unwrap()
}

fn locked() -> Window {
    let mut cast = None;
    let scene = training(|scene, thread, at| {
        let (holder, lock) =
            *cast.get_or_insert_with(|| (scene.program(4800, "holder"), scene.target(TargetKind::Lock, "0x7f10")));
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 6 * MS, lock, holder));
    });
    with_ids_of_a_file(scene.finished())
}

#[test]
fn a_file_is_explained_as_the_window_it_was_made_of() {
    let window = locked();
    let (_directory, path) = written(&window);
    let loaded = load(&path, &Scope::default());
    assert_eq!(loaded.stretches.rows, window.stretches.rows);
    assert_eq!(loaded.calls.rows, window.calls.rows);
    assert_eq!(loaded.thread_sums.len(), 2);
    assert_eq!((loaded.calls.spans.len(), loaded.gaps.len()), (1, 0));
    let explanation = explain(&loaded);
    let finding = only(&explanation, "lock-wait");
    assert_eq!((finding.culprit.as_ref().unwrap().pid, finding.impact.share), (4800, 0.3));
}

#[test]
fn a_span_is_explained_on_its_own() {
    let (_directory, path) = written(&locked());
    let scope = Scope { from_ns: Some(START_NS + 2 * S), to_ns: Some(START_NS + 5 * S), pid: Some(4711) };
    let window = load(&path, &scope);
    assert_eq!((window.from_ns, window.to_ns), (START_NS + 2 * S, START_NS + 5 * S));
    assert!(window.calls.rows.iter().all(|call| (window.from_ns..window.to_ns).contains(&call.start_ns)));
    assert_eq!(window.call_sums.iter().map(|sum| sum.seconds).max(), Some(3));
    let elsewhere = load(&path, &Scope { from_ns: Some(1), to_ns: Some(2), pid: None });
    assert_eq!(explain(&elsewhere).coverage.unattached, ["nothing was traced in this span"]);
}

#[test]
fn a_file_without_an_end_is_explained_while_it_is_written() {
    let window = locked();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    let session = gpuwhy_model::Session { started_ns: START_NS, ..Default::default() };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    write_names(&mut writer, &window);
    writer.stretches(&window.stretches.rows).unwrap();
    writer.stats(&stats(&window)).unwrap();
    let times: Vec<_> = window.thread_sums.iter().map(|sum| sum.times.clone()).collect();
    writer.thread_times(&times).unwrap();
    writer.commit(window.to_ns).unwrap();
    let explanation = explain(&load(&path, &Scope::default()));
    assert_eq!(explanation.findings[0].cause, "lock-wait");
    assert_eq!(explanation.window.to_ns, window.to_ns + 1);
}

#[test]
fn an_empty_file_has_no_answer_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.db");
    let session = gpuwhy_model::Session { started_ns: START_NS, ..Default::default() };
    let mut writer = Writer::open(&path, &session, &Options::default()).unwrap();
    writer.process(&Process::default()).unwrap();
    writer.commit(START_NS).unwrap();
    let explanation = explain(&load(&path, &Scope::default()));
    assert_eq!(explanation.findings, []);
    assert_eq!(explanation.coverage.unattached, ["no call of a GPU library was seen in this span"]);
}

#[test]
fn files_of_earlier_versions_are_read_and_say_what_they_lack() {
    for (version, calls) in [("version-1.trace", 33), ("version-2.trace", 63)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.db");
        let old = format!("{}/../store/tests/data/{version}", env!("CARGO_MANIFEST_DIR"));
        std::fs::copy(old, &path).unwrap();
        let window = load(&path, &Scope::default());
        assert_eq!(window.call_sums.iter().map(|sum| sum.calls).sum::<u64>(), calls, "{version}");
        let explanation = explain(&window);
        assert!(explanation.coverage.unattached[0].contains("earlier version"), "{explanation:#?}");
        // One of its allocations was refused.
        only(&explanation, "alloc-failed");
    }
}
