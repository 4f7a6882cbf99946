//! Where the time of the threads that feed a GPU went.

use std::collections::BTreeMap;

use gpuwhy_model::{StandsFor, Stretch, WaitReason};
use serde_json::{Value, json};

use crate::support::*;

fn parts(of: &Value) -> BTreeMap<String, u64> {
    let parts = of["parts"].as_array().unwrap().iter();
    parts.map(|part| (part["name"].as_str().unwrap().to_owned(), number(&part["ns"]))).collect()
}

/// Four seconds, a hundred launches in each. In the third it sleeps for 600 ms, in all others for 100 ms in a sync.
fn loop_with_one_bad_second() -> Scene {
    let mut scene = Scene::new();
    let (launch, sync) = (scene.launch, scene.sync);
    for second in 0..4 {
        let is_bad = second == 2;
        let slept = if is_bad { 600 * MS } else { 0 };
        let stats = [scene.stats(launch, second, 100, 50 * US), scene.stats(sync, second, 10, 10 * MS)];
        let stats = stats.map(|mut stats| {
            stats.blocked_ns = if stats.op == sync { 100 * MS } else { 0 };
            stats
        });
        scene.writer.stats(&stats).unwrap();
        let blocked = [(WaitReason::Ioctl, 100 * MS), (WaitReason::Sleep, slept)];
        scene.writer.thread_times(&[scene.second(scene.thread, second, &blocked)]).unwrap();
        let from = second * S;
        let wait = Stretch { op: Some(sync), ..scene.stretch(scene.thread, from + 10 * MS, WaitReason::Ioctl, 5 * MS) };
        let all = StandsFor { count: 10, blocked_ns: 100 * MS, runqueue_ns: 0 };
        scene.writer.stretches(&[Stretch { all, ..wait }]).unwrap();
        if is_bad {
            let sleep = scene.stretch(scene.thread, from + 200 * MS, WaitReason::Sleep, slept);
            scene.writer.stretches(&[sleep]).unwrap();
        }
    }
    scene
}

#[test]
fn the_parts_add_up_in_all_and_in_every_bucket() {
    let answer = loop_with_one_bad_second().ask("waits", json!({"to": START_NS + 4 * S}));
    let thread = &answer["threads"][0];
    assert_eq!(number(&thread["wall_ns"]), 4 * S);
    let whole = parts(thread);
    assert_eq!(whole["asleep on purpose"], 600 * MS);
    assert_eq!(whole["waiting for the GPU"], 400 * MS);
    assert_eq!(whole["launching"], 20 * MS);
    assert_eq!(whole.values().sum::<u64>(), 4 * S);
    let series = thread["series"].as_array().unwrap();
    assert_eq!(answer["bucket_length_ns"], json!(S));
    assert_eq!(series.len(), 4);
    for bucket in series {
        assert_eq!(parts(bucket).values().sum::<u64>(), number(&bucket["wall_ns"]), "{bucket}");
    }
    assert_eq!(parts(&series[2])["asleep on purpose"], 600 * MS);
    assert!(!parts(&series[1]).contains_key("asleep on purpose"));
    assert_eq!(parts(&series[1])["waiting for the GPU"], 100 * MS);
}

#[test]
fn fewer_buckets_are_longer_and_hold_the_same_time() {
    let answer = loop_with_one_bad_second().ask("waits", json!({"buckets": 2, "to": START_NS + 4 * S}));
    let series = &answer["threads"][0]["series"];
    assert_eq!(answer["bucket_length_ns"], json!(2 * S));
    assert_eq!(series.as_array().unwrap().len(), 2);
    assert_eq!(sum(series, "wall_ns"), 4 * S);
    assert_eq!(parts(&series[1])["asleep on purpose"], 600 * MS);
    assert_eq!(answer["threads"][0]["median_step"], Value::Null, "no step is known");
}

#[test]
fn a_number_of_buckets_that_cannot_be_is_refused() {
    let scene = loop_with_one_bad_second();
    for buckets in [0, 501] {
        let error = ask(&scene.path, "waits", json!({ "buckets": buckets })).unwrap_err();
        assert_eq!(error.code(), "bad_parameters");
    }
}

#[test]
fn a_recording_is_split_by_second_and_by_step() {
    let answer = ask(&recording(), "waits", json!({})).unwrap();
    let thread = &answer["threads"][0];
    let (whole, mut over_time) = (parts(thread), BTreeMap::<String, u64>::new());
    for bucket in thread["series"].as_array().unwrap() {
        parts(bucket).into_iter().for_each(|(name, ns)| *over_time.entry(name).or_default() += ns);
    }
    assert_eq!(over_time.values().sum::<u64>(), number(&thread["wall_ns"]));
    for (name, ns) in &whole {
        let other = over_time.get(name).copied().unwrap_or(0);
        assert!(ns.abs_diff(other) <= number(&thread["wall_ns"]) / 100, "{name}: {ns} and {other}");
    }
    let [median, slowest] = ["median_step", "slowest_step"].map(|step| &thread[step]);
    for step in [median, slowest] {
        assert_eq!(parts(step).values().sum::<u64>(), number(&step["ns"]), "{step}");
    }
    assert_eq!(median["ns"], thread["steps"]["median_ns"]);
    assert!(number(&slowest["ns"]) >= number(&median["ns"]));
    let input = parts(median)["waiting for input"] as f64 / number(&median["ns"]) as f64;
    let overall = whole["waiting for input"] as f64 / number(&thread["wall_ns"]) as f64;
    assert!((input - overall).abs() < 0.1, "a median step waits like all do: {input} and {overall}");
}

#[test]
fn a_thread_and_a_process_can_be_chosen() {
    let whole = ask(&recording(), "waits", json!({})).unwrap();
    let (pid, tid) = (&whole["threads"][0]["pid"], &whole["threads"][0]["tid"]);
    let same = ask(&recording(), "waits", json!({"pid": pid, "tid": tid})).unwrap();
    assert_eq!(same["threads"], whole["threads"]);
    let none = ask(&recording(), "waits", json!({"tid": 1})).unwrap();
    assert_eq!(none["threads"], json!([]));
}
