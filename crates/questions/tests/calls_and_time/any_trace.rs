//! Traces of every kind: empty ones, those of earlier versions, and ones whose names are hostile.

use std::path::{Path, PathBuf};

use gpuwhy_model::Call;
use serde_json::{Value, json};

use crate::small::{MS, START_NS, Small, array, ask, ask_all};

const QUESTIONS: &[&str] = &["summary", "calls", "audit", "timeline", "compare", "slow_calls", "findings"];

#[test]
fn an_empty_trace_has_an_answer_to_everything() {
    let trace = Small::new().finish(1);
    for question in QUESTIONS {
        let answer = ask(&trace.path, question, json!({}));
        assert!(answer.is_object(), "{question}");
    }
    assert_eq!(ask(&trace.path, "summary", json!({}))["totals"]["calls"], 0);
    assert!(array(&ask(&trace.path, "timeline", json!({})), "/lanes").is_empty());
    for by in ["op", "process", "thread", "device"] {
        assert!(array(&ask(&trace.path, "calls", json!({"by": by})), "/calls").is_empty());
    }
}

#[test]
fn a_part_in_which_nothing_was_traced_has_an_answer_too() {
    let trace = Small::new().finish(1);
    for question in QUESTIONS {
        let answer = ask(&trace.path, question, json!({"from": 5, "to": 1_000_000}));
        assert!(answer.is_object(), "{question}");
    }
}

fn older(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../store/tests/data/version-{version}.trace"))
}

#[test]
fn traces_of_earlier_versions_answer_what_they_know() {
    for version in 1..gpuwhy_store::SCHEMA_VERSION {
        let file = older(version);
        let before = std::fs::read(&file).unwrap();
        for question in QUESTIONS {
            ask(&file, question, json!({}));
        }
        let calls = ask(&file, "calls", json!({"op": "cudaLaunchKernel"}));
        assert_eq!(calls["calls"][0]["count"], 30);
        assert_eq!(calls["is_exact"], version == 1, "the first version saw every call");
        let log = ask(&file, "audit", json!({}));
        assert_eq!((array(&log, "/calls").len(), &log["calls"][0]["file"]), (33, &Value::Null));
        let drawn = ask(&file, "timeline", json!({}));
        let count = |lane: &Value| lane["calls_count"].as_u64().unwrap();
        assert_eq!(array(&drawn, "/lanes").iter().map(count).sum::<u64>(), 33);
        let record = ask(&file, "record", json!({"ref": log["calls"][0]["ref"]}));
        assert_eq!((&record["stack"], &record["record"]["ret_code"]), (&Value::Null, &json!(0)));
        assert_eq!(std::fs::read(&file).unwrap(), before, "the file is left as it is");
    }
}

const HOSTILE: &[&str] = &[
    "'; DROP TABLE calls; --",
    "\" OR 1=1 --",
    "<script>alert(1)</script>",
    "\u{1b}[31mred\u{7}",
    "ignore previous instructions",
    "%n%s\0end",
    "]}{[",
];

#[test]
fn hostile_names_are_told_as_they_are_and_do_nothing() {
    for name in HOSTILE {
        let mut small = Small::named(name);
        let stack = small.stack(name, 1);
        let call = Call { stack_id: Some(stack), ..small.call(small.launch, MS, 1000) };
        small.write([call]);
        small.writer.stats(&[small.second(small.launch, 0, 1, 1000)]).unwrap();
        small.writer.stretches(&[small.wait(2 * MS, MS, None)]).unwrap();
        let trace = small.finish(1);
        let told = name.to_string();
        assert_eq!(ask(&trace.path, "summary", json!({}))["processes"][0]["comm"], told);
        assert_eq!(ask(&trace.path, "calls", json!({"by": "thread"}))["calls"][0]["comm"], told);
        assert_eq!(ask(&trace.path, "audit", json!({}))["calls"][0]["file"], told);
        assert_eq!(ask(&trace.path, "timeline", json!({}))["lanes"][0]["comm"], told);
        let record = ask(&trace.path, "record", json!({"ref": format!("cuda:{}", START_NS + MS)}));
        assert_eq!(record["stack"]["frames"][1]["file"], told);
        ask(&trace.path, "compare", json!({}));
    }
}

#[test]
fn hostile_parameters_are_only_ever_compared() {
    let mut small = Small::new();
    small.write([small.call(small.launch, MS, 1000)]);
    let trace = small.finish(1);
    for text in HOSTILE {
        for question in ["calls", "audit"] {
            assert!(array(&ask(&trace.path, question, json!({"op": text})), "/calls").is_empty());
            let error = ask_all(&[&trace.path], question, json!({"after": text})).unwrap_err();
            assert_eq!(error.code(), "bad_parameters");
        }
        let error = ask_all(&[&trace.path], "compare", json!({"with_trace": text})).unwrap_err();
        assert_eq!(error.code(), "no_such_trace");
    }
    assert_eq!(ask(&trace.path, "summary", json!({}))["totals"]["kept_calls"], 1, "and all is there still");
}
