//! GPU memory: what is live, where it was allocated, and what is not known.

use gpuwhy_model::{Call, StackId};
use serde_json::{Value, json};

use crate::support::*;

const MIB: u64 = 1 << 20;

fn alloc(scene: &Scene, offset_ns: u64, address: u64, bytes: u64, stack: StackId) -> Call {
    let (address, bytes, stack_id) = (Some(address), Some(bytes), Some(stack));
    Call { address, bytes, stack_id, ..scene.call(scene.alloc, offset_ns, 10 * US) }
}

fn free(scene: &Scene, offset_ns: u64, address: u64) -> Call {
    Call { address: Some(address), ..scene.call(scene.free, offset_ns, 10 * US) }
}

/// Ten seconds. Every second one line allocates a MiB that stays, and another one 4 MiB that go after 10 ms.
fn leaking() -> Scene {
    let mut scene = Scene::new();
    let (leak, buffer) = (scene.stack("keep", 12), scene.stack(HOSTILE, 34));
    let (alloc_op, free_op) = (scene.alloc, scene.free);
    let mut calls = Vec::new();
    for second in 0..10 {
        let at = second * S + 100 * MS;
        calls.push(alloc(&scene, at, 0x1000_0000 + second * 2 * MIB, MIB, leak));
        calls.push(alloc(&scene, at + MS, 0x8000_0000, 4 * MIB, buffer));
        calls.push(free(&scene, at + 11 * MS, 0x8000_0000));
        scene.writer.stats(&[scene.stats(alloc_op, second, 2, US), scene.stats(free_op, second, 1, US)]).unwrap();
    }
    scene.writer.calls(&mut calls).unwrap();
    scene
}

fn site(answer: &Value, line: u32) -> Value {
    let sites = answer["sites"].as_array().unwrap();
    sites.iter().find(|site| site["place"]["line"] == json!(line)).unwrap().clone()
}

#[test]
fn live_bytes_are_told_by_the_line_that_allocated_them() {
    let answer = leaking().ask("memory", json!({}));
    let kept = site(&answer, 12);
    assert_eq!((number(&kept["live_bytes"]), number(&kept["live_count"])), (10 * MIB, 10));
    assert_eq!(number(&kept["oldest_ns"]), START_NS + 100 * MS);
    assert_eq!(kept["newest_ref"], json!(format!("cuda:{}", START_NS + 9 * S + 100 * MS)));
    let growth = kept["growth_bytes_per_minute"].as_f64().unwrap() / MIB as f64;
    assert!((50.0..70.0).contains(&growth), "a MiB a second is 60 a minute: {growth}");
    let freed = site(&answer, 34);
    assert_eq!((number(&freed["live_bytes"]), number(&freed["allocations"])), (0, 10));
    assert_eq!((&freed["oldest_ns"], &freed["place"]["function"]), (&Value::Null, &json!(HOSTILE)));
}

#[test]
fn a_pool_has_its_peak_its_growth_and_its_gaps() {
    let answer = leaking().ask("memory", json!({}));
    let process = &answer["processes"][0];
    assert_eq!(process["unknown"], json!([]));
    let pool = &process["pools"][0];
    assert_eq!((&pool["device"], &pool["kind"]), (&json!(0), &json!("device")));
    assert_eq!((number(&pool["live_bytes"]), number(&pool["peak_bytes"])), (10 * MIB, 14 * MIB));
    assert_eq!(number(&pool["peak_at_ns"]), START_NS + 9 * S + 101 * MS);
    let series = pool["series"].as_array().unwrap();
    assert!(series.len() <= 200 && series.len() >= 10, "{}", series.len());
    assert!(series.windows(2).all(|pair| number(&pair[0]["at_ns"]) < number(&pair[1]["at_ns"])));
    assert_eq!(number(&series.last().unwrap()["live_bytes"]), 10 * MIB);
    let gaps = &pool["fragmentation"];
    assert_eq!((number(&gaps["span_bytes"]), number(&gaps["largest_gap_bytes"])), (19 * MIB, MIB));
    assert_eq!(number(&gaps["gaps"]), 9);
    let churn = &process["churn"];
    assert_eq!((number(&churn["count"]), number(&churn["bytes"])), (8, 32 * MIB), "after the first sixth");
    let lifetime = number(&churn["median_lifetime_ns"]);
    assert!((9 * MS..=12 * MS).contains(&lifetime), "{lifetime}");
    assert_eq!((number(&process["allocations"]), number(&process["frees"])), (20, 10));
}

#[test]
fn what_was_allocated_before_the_span_is_still_live_in_it() {
    let answer = leaking().ask("memory", json!({"from": START_NS + 5 * S}));
    assert_eq!(number(&site(&answer, 12)["live_bytes"]), 10 * MIB);
    assert_eq!(number(&answer["processes"][0]["allocations"]), 10);
}

#[test]
fn what_is_not_known_is_said() {
    let mut scene = leaking();
    // Somebody else's memory, and more calls than have a record.
    let mut orphan = [free(&scene, 2 * S, 0x9000_0000)];
    scene.writer.calls(&mut orphan).unwrap();
    let mut stats = scene.stats(scene.alloc, 9, 7, US);
    (stats.thread, stats.errors) = (scene.worker, 3);
    scene.writer.stats(&[stats]).unwrap();
    let failed = Call { ret_code: 2, ..alloc(&scene, 9 * S + 500 * MS, 0, 1 << 40, StackId(1)) };
    scene.writer.calls(&mut [Call { address: None, ..failed }]).unwrap();
    let answer = scene.ask("memory", json!({}));
    let process = &answer["processes"][0];
    let unknown = process["unknown"].to_string();
    assert!(unknown.contains("4 allocations have no record"), "{unknown}");
    assert!(unknown.contains("1 frees are of memory whose allocation was not seen"), "{unknown}");
    assert_eq!(number(&process["failed"]), 3);
    let failure = &process["failures"][0];
    assert_eq!((&failure["ret_code"], number(&failure["bytes"])), (&json!(2), 1 << 40));
    assert_eq!(failure["place"]["line"], json!(12));
}

#[test]
fn another_process_has_none() {
    let answer = leaking().ask("memory", json!({"pid": 7}));
    assert_eq!((&answer["processes"], &answer["sites"]), (&json!([]), &json!([])));
}
