//! `calls` and `summary`.

use gpuwhy_model::{CallStats, Histogram, LossReason, Losses};
use serde_json::{Value, json};

use crate::small::{Finished, MS, SECOND, START_NS, Small, array, ask};

/// 1,000 launches of 5 us, 10 syncs of 20 ms of which half is blocked, and 4 allocations, of which one failed.
fn seen() -> Finished {
    let mut small = Small::new();
    let sync = CallStats { blocked_ns: 100 * MS, runqueue_ns: 2 * MS, ..small.second(small.sync, 0, 10, 20 * MS) };
    let alloc = CallStats { bytes: 4096, errors: 1, ..small.second(small.alloc, 0, 4, 40_000) };
    let worker = CallStats { thread: small.worker, ..small.second(small.launch, SECOND, 400, 5000) };
    let stats = [small.second(small.launch, 0, 600, 5000), worker, sync, alloc];
    small.writer.stats(&stats).unwrap();
    let kept: Vec<_> = (0..10).map(|at| small.call(small.sync, at * 50 * MS, 20 * MS)).collect();
    small.write(kept.into_iter().enumerate().map(|(at, mut call)| {
        call.device = (at < 6).then_some(1);
        call
    }));
    small
        .writer
        .losses(&{
            let mut losses = Losses::default();
            losses.set(LossReason::ALL[0], 7);
            losses
        })
        .unwrap();
    small.finish(2)
}

fn row<'v>(answer: &'v Value, field: &str, value: Value) -> &'v Value {
    array(answer, "/calls").iter().find(|row| row[field] == value).unwrap()
}

#[test]
fn every_call_that_was_counted_is_in_the_statistics() {
    let trace = seen();
    let answer = ask(&trace.path, "calls", json!({}));
    assert_eq!(array(&answer, "/calls")[0]["op"], "cuStreamSynchronize", "most time first");
    let launch = row(&answer, "op", json!("cuLaunchKernel"));
    assert_eq!([&launch["count"], &launch["estimate"], &launch["sum_ns"]], [1000, 1000, 5_000_000]);
    assert_eq!((&launch["error"], &launch["fraction"]), (&json!(0.0), &json!(1.0)));
    let sync = row(&answer, "op", json!("cuStreamSynchronize"));
    assert_eq!([&sync["running_ns"], &sync["runqueue_ns"], &sync["blocked_ns"]], [98 * MS, 2 * MS, 100 * MS]);
    let alloc = row(&answer, "op", json!("cuMemAlloc_v2"));
    assert_eq!([&alloc["bytes"], &alloc["errors"]], [4096, 1]);
    assert_eq!(answer["is_exact"], true);
    assert!(answer["method"].as_str().unwrap().starts_with("Exact"));
}

#[test]
fn percentiles_and_histograms_are_those_of_the_buckets() {
    let trace = seen();
    let answer = ask(&trace.path, "calls", json!({"op": "cudaStreamSynchronize"}));
    let [sync] = array(&answer, "/calls") else { panic!("{answer}") };
    let index = Histogram::index(20 * MS);
    assert_eq!(sync["histogram"], json!([[Histogram::upper_bound_ns(index), 10]]));
    for percentile in ["p50_ns", "p90_ns", "p99_ns"] {
        let ns = sync[percentile].as_u64().unwrap();
        assert!(ns.abs_diff(20 * MS) <= 20 * MS / 16, "{percentile} {ns}");
    }
}

#[test]
fn a_function_is_found_by_any_of_its_names() {
    let trace = seen();
    for op in ["cuMemAlloc", "cuMemAlloc_v2", "cudaMalloc", "cuMemAlloc_v3020"] {
        let answer = ask(&trace.path, "calls", json!({"op": op}));
        assert_eq!(array(&answer, "/calls").len(), 1, "{op}");
    }
    assert!(array(&ask(&trace.path, "calls", json!({"op": "cuMem%"})), "/calls").is_empty());
}

#[test]
fn calls_are_added_up_by_process_and_by_thread() {
    let trace = seen();
    let answer = ask(&trace.path, "calls", json!({"by": "process", "op": "cuLaunchKernel"}));
    assert_eq!(row(&answer, "pid", json!(100))["count"], 1000);
    let answer = ask(&trace.path, "calls", json!({"by": "thread", "op": "cuLaunchKernel"}));
    assert_eq!(row(&answer, "tid", json!(100))["count"], 600);
    assert_eq!(row(&answer, "tid", json!(101))["count"], 400);
    let answer = ask(&trace.path, "calls", json!({"by": "thread", "pid": 200}));
    assert!(array(&answer, "/calls").is_empty());
}

#[test]
fn by_device_the_answer_says_how_many_calls_it_knows_it_of() {
    let trace = seen();
    let answer = ask(&trace.path, "calls", json!({"by": "device"}));
    assert_eq!(row(&answer, "device", json!(1))["count"], 6);
    assert_eq!(array(&answer, "/calls").len(), 2, "and those that name none");
    assert_eq!((&answer["kept"]["kept"], &answer["kept"]["made"]), (&json!(10), &json!(1014)));
    assert_eq!(answer["is_exact"], false);
    assert!(answer["method"].as_str().unwrap().contains("10 of 1014"), "{}", answer["method"]);
}

#[test]
fn what_was_sampled_is_scaled_up_and_carries_its_error() {
    let mut small = Small::new();
    let sampled = |stats: CallStats| CallStats { fraction: 0.1, estimate: 10 * stats.count, variance: 400.0, ..stats };
    let stats = [0, 1].map(|at| sampled(small.second(small.launch, at * SECOND, 100, 5000)));
    small.writer.stats(&stats).unwrap();
    let trace = small.finish(2);
    let answer = ask(&trace.path, "calls", json!({}));
    let launch = &array(&answer, "/calls")[0];
    assert_eq!([&launch["count"], &launch["estimate"], &launch["sum_ns"]], [200, 2000, 10_000_000]);
    let error = launch["error"].as_f64().unwrap();
    assert!((error - 1.96 * 800f64.sqrt()).abs() < 1e-6, "{error}");
    assert_eq!(launch["histogram"][0][1], 2000, "as many calls as it stands for");
    assert_eq!(answer["is_exact"], false);
    assert!(answer["method"].as_str().unwrap().starts_with("Estimated"));
    assert_eq!(answer["coverage"]["sampled"][0], json!({"op": "cuLaunchKernel", "fraction": 0.1}));
}

#[test]
fn a_part_of_a_second_has_the_sums_of_that_second_and_says_so() {
    let trace = seen();
    let ask = |from_ms: u64, to_ms: u64| {
        let part = json!({"from": START_NS + from_ms * MS, "to": START_NS + to_ms * MS, "op": "cuLaunchKernel"});
        ask(&trace.path, "calls", part)
    };
    for (from_ms, to_ms, count) in [(100, 101, 600), (600, 900, 600), (1010, 1020, 400), (1999, 2000, 400)] {
        let answer = ask(from_ms, to_ms);
        assert_eq!(array(&answer, "/calls")[0]["count"], count, "{from_ms} to {to_ms} ms: {answer}");
        let notes = array(&answer, "/coverage/unattached");
        assert!(notes[0].as_str().unwrap().contains("the second around this part"), "{answer}");
        assert!(answer["kept"]["share"].as_f64().unwrap() <= 1.0, "{answer}");
    }
    let whole = ask(0, 1000);
    assert_eq!(array(&whole, "/calls")[0]["count"], 600);
    assert!(array(&whole, "/coverage/unattached").is_empty(), "{whole}");
}

#[test]
fn a_long_answer_comes_in_pages() {
    let trace = seen();
    let first = ask(&trace.path, "calls", json!({"limit": 2}));
    assert_eq!(array(&first, "/calls").len(), 2);
    let second = ask(&trace.path, "calls", json!({"limit": 2, "after": first["next"]}));
    assert_eq!(array(&second, "/calls").len(), 1);
    assert_eq!(second["next"], Value::Null);
}

#[test]
fn the_summary_says_what_the_trace_holds() {
    let trace = seen();
    let answer = ask(&trace.path, "get_trace_stats", json!({}));
    let totals = &answer["totals"];
    assert_eq!([&totals["calls"], &totals["seen_calls"], &totals["kept_calls"]], [1014, 1014, 10]);
    assert_eq!([&totals["lost"], &totals["waits"]], [7, 0]);
    assert_eq!(totals["file_bytes"], std::fs::metadata(&trace.path).unwrap().len());
    let session = &answer["sessions"][0];
    assert_eq!((&session["started_ns"], &session["end_reason"]), (&json!(START_NS), &json!("finished")));
    let python = &answer["processes"][0];
    assert_eq!([&python["pid"], &python["calls"], &python["launches"]], [100, 1014, 1000]);
    assert!(python["cmdline"].as_str().unwrap().len() < 200, "shortened");
    assert_eq!(answer["processes_count"], 2);
    assert_eq!(answer["functions"][0]["op"], "cuStreamSynchronize");
}

#[test]
fn a_session_that_goes_on_has_no_end_yet() {
    let mut small = Small::new();
    small.writer.commit(START_NS + SECOND).unwrap();
    let answer = ask(&small.path, "summary", json!({}));
    let session = &answer["sessions"][0];
    assert_eq!((&session["ended_ns"], &session["end_reason"]), (&Value::Null, &Value::Null));
    assert_eq!(session["last_commit_ns"], START_NS + SECOND);
}
