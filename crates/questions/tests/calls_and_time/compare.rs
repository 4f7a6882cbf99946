//! `compare`: two parts of a trace, and two traces.

use std::path::Path;

use gpuwhy_model::CallStats;
use gpuwhy_store::{KeptExplanation, keep_explanation};
use serde_json::{Value, json};

use crate::small::{Finished, MS, SECOND, START_NS, Small, array, ask, ask_all};

/// Eight seconds; from the fifth on, launches take twice as long and come half as often.
fn slower() -> Finished {
    let mut small = Small::new();
    let launches = |at: u64| match at {
        0..4 => small.second(small.launch, at * SECOND, 1000, 10_000),
        _ => small.second(small.launch, at * SECOND, 500, 20_000),
    };
    let allocs = (4..8).map(|at| small.second(small.alloc, at * SECOND, 1, 300 * MS));
    let stats: Vec<CallStats> = (0..8).map(launches).chain(allocs).collect();
    small.writer.stats(&stats).unwrap();
    small.finish(8)
}

fn function<'v>(answer: &'v Value, op: &str) -> &'v Value {
    array(answer, "/functions").iter().find(|function| function["op"] == op).unwrap()
}

fn near(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() <= expected.abs() * 0.01, "{value} instead of {expected}");
}

fn check_slower(answer: &Value) {
    let launch = function(answer, "cuLaunchKernel");
    near(&launch["first"]["per_second"], 1000.0);
    near(&launch["second"]["per_second"], 500.0);
    near(&launch["rate_ratio"], 0.5);
    assert_eq!([&launch["first"]["mean_ns"], &launch["second"]["mean_ns"]], [10_000, 20_000]);
    near(&launch["mean_ratio"], 2.0);
    assert_eq!(array(answer, "/functions")[0]["op"], "cuMemAlloc_v2", "most of the time changed there");
    near(&function(answer, "cuMemAlloc_v2")["change_share"], 0.3);
    assert_eq!(launch["is_within_error"], false);
}

#[test]
fn the_halves_of_a_trace_are_compared_where_nothing_else_is_said() {
    let trace = slower();
    let answer = ask(&trace.path, "compare", json!({}));
    assert_eq!(answer["first"]["window"]["to_ns"], answer["second"]["window"]["from_ns"]);
    check_slower(&answer);
    assert_eq!(function(&answer, "cuMemAlloc_v2")["rate_ratio"], Value::Null, "there was none before");
}

#[test]
fn two_parts_that_are_named_are_compared() {
    let trace = slower();
    let moment = |seconds: u64| START_NS + seconds * SECOND;
    let parameters = json!({"from": moment(1), "to": moment(3), "with_from": moment(5), "with_to": moment(7)});
    let answer = ask(&trace.path, "compare", parameters);
    assert_eq!(answer["second"]["window"], json!({"from_ns": moment(5), "to_ns": moment(7)}));
    check_slower(&answer);
    let answer = ask(&trace.path, "compare", json!({"from": moment(0), "to": moment(4), "with_since": "4s"}));
    check_slower(&answer);
}

#[test]
fn a_process_is_compared_with_another_one_over_the_same_time() {
    let trace = slower();
    let answer = ask(&trace.path, "compare", json!({"to": START_NS + 4 * SECOND, "pid": 100, "with_pid": 200}));
    assert_eq!(answer["first"]["window"], answer["second"]["window"]);
    assert_eq!(function(&answer, "cuLaunchKernel")["second"]["calls"], 0);
}

#[test]
fn of_two_traces_the_other_one_is_the_second() {
    let (trace, demo) = (slower(), demo());
    let answer = ask_all(&[&trace.path, &demo], "compare", json!({})).unwrap();
    assert_eq!([&answer["first"]["trace"], &answer["second"]["trace"]], ["trace.db", "demo.trace"]);
    let answer = ask_all(&[&trace.path, &demo], "compare", json!({"trace": "demo.trace"})).unwrap();
    assert_eq!([&answer["first"]["trace"], &answer["second"]["trace"]], ["demo.trace", "trace.db"]);
    let error = ask_all(&[&trace.path], "compare", json!({"with_trace": "other.db"})).unwrap_err();
    assert_eq!(error.code(), "no_such_trace");
}

fn demo() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpuwhy/data/demo.trace")
}

#[test]
fn where_time_went_and_findings_are_compared_too() {
    let answer = ask(&demo(), "compare", json!({}));
    let shares = |side: &str| -> f64 { array(&answer, "/parts").iter().map(|part| part[side].as_f64().unwrap()).sum() };
    assert!((shares("first_share") - 1.0).abs() < 0.02 && (shares("second_share") - 1.0).abs() < 0.02);
    let both = array(&answer, "/findings/in_both");
    assert!(both.iter().any(|both| both["first"]["cause"] == "input-starved"), "{both:?}");
    let trace = slower();
    let answer = ask_all(&[&demo(), &trace.path], "compare", json!({})).unwrap();
    let gone = array(&answer, "/findings/only_in_first");
    assert!(gone.iter().any(|finding| finding["cause"] == "input-starved"), "{gone:?}");
    assert!(array(&answer, "/notes").iter().any(|note| note.as_str().unwrap().contains("second part no thread")));
}

#[test]
fn stored_findings_of_two_traces_are_compared_as_if_they_were_found_anew() {
    let trace = slower();
    // A file of an earlier version is brought up to date.
    let copy = trace.path.with_file_name("demo.db");
    std::fs::copy(demo(), &copy).unwrap();
    for path in [&trace.path, &copy] {
        assert_eq!(ask_all(&[path], "findings", json!({"stored": true})).unwrap_err().code(), "not_found");
        let found = ask(path, "findings", json!({}));
        let kept = KeptExplanation { at_ns: START_NS, version: "0.0.7".into(), json: found.to_string() };
        keep_explanation(path, &kept, None).unwrap();
        assert_eq!(ask(path, "findings", json!({"stored": true})), found);
        let part = json!({"stored": true, "pid": 1});
        assert_eq!(ask_all(&[path], "findings", part).unwrap_err().code(), "bad_parameters");
    }
    let both = [&copy, &trace.path].map(|path| path.as_path());
    let stored = ask_all(&both, "compare", json!({"stored": true})).unwrap();
    assert_eq!(stored["findings"], ask_all(&both, "compare", json!({})).unwrap()["findings"]);
    let gone = array(&stored, "/findings/only_in_first");
    assert!(gone.iter().any(|finding| finding["title"] == "Input came too late"), "{gone:?}");
}

#[test]
fn a_steady_program_is_as_fast_in_both_halves() {
    let answer = ask(&demo(), "compare", json!({}));
    for function in array(&answer, "/functions") {
        let ratio = function["rate_ratio"].as_f64().unwrap();
        assert!((0.9..1.1).contains(&ratio), "{} {ratio}", function["op"]);
    }
}

#[test]
fn a_difference_within_the_sampling_error_is_said_to_be_one() {
    let mut small = Small::new();
    let sampled = |at: u64, estimate| {
        let seen = small.second(small.launch, at * SECOND, 100, 5000);
        CallStats { fraction: 0.1, estimate, variance: 10_000.0, ..seen }
    };
    let stats: Vec<CallStats> =
        [1000, 1010, 1040, 1050].into_iter().zip(0..).map(|(calls, at)| sampled(at, calls)).collect();
    small.writer.stats(&stats).unwrap();
    let trace = small.finish(4);
    let answer = ask(&trace.path, "compare", json!({}));
    let launch = function(&answer, "cuLaunchKernel");
    assert_eq!(launch["is_within_error"], true, "{launch}");
    assert!(array(&answer, "/notes").iter().any(|note| note.as_str().unwrap().contains("within the sampling error")));
}
