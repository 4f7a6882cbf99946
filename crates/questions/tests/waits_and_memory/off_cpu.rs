//! Time off the CPU by thread, reason and waker.

use gpuwhy_model::{CpuTaker, StandsFor, Stretch, TargetKind, WaitReason, WaitTarget};
use serde_json::{Value, json};

use crate::support::*;

/// Two waits on a lock that the worker ends, the second of which stands for shorter ones too, and a sleep.
fn lock_and_sleep() -> Scene {
    let mut scene = Scene::new();
    let target = WaitTarget { process: scene.process, kind: TargetKind::Lock, name: HOSTILE.into() };
    let target = Some(scene.writer.target(&target).unwrap());
    let (stack, waker_stack) = (Some(scene.stack("train", 142)), Some(scene.stack("hold", 7)));
    let rare = Some(scene.stack("setup", 3));
    let wait = |offset, ns| Stretch {
        target,
        woken_by: Some(scene.worker),
        stack,
        waker_stack,
        ..scene.stretch(scene.thread, offset, WaitReason::Futex, ns)
    };
    let all = StandsFor { count: 9, blocked_ns: 5 * MS, runqueue_ns: 2 * MS };
    let taken_by = [Some(CpuTaker { thread: scene.worker, ns: MS }), None];
    let stretches = [
        Stretch { stack: rare, ..wait(MS, 2 * MS) },
        Stretch { all, runqueue_ns: MS, taken_by, ..wait(10 * MS, 3 * MS) },
        scene.stretch(scene.worker, 20 * MS, WaitReason::Sleep, 40 * MS),
        Stretch { reason: None, runqueue_ns: 3 * MS, ..scene.stretch(scene.worker, 90 * MS, WaitReason::Other, 0) },
    ];
    scene.writer.stretches(&stretches).unwrap();
    let mut times = scene.second(scene.thread, 0, &[(WaitReason::Futex, 7 * MS)]);
    times.runqueue_ns = 2 * MS;
    scene.writer.thread_times(&[times, scene.second(scene.worker, 0, &[(WaitReason::Sleep, 40 * MS)])]).unwrap();
    scene
}

#[test]
fn sums_are_those_of_the_clocks_and_short_waits_count() {
    let answer = lock_and_sleep().ask("off_cpu", json!({}));
    let waits = answer["waits"].as_array().unwrap();
    assert_eq!(waits.len(), 2, "being preempted is no wait: {waits:#?}");
    assert_eq!((&waits[0]["reason"], number(&waits[0]["blocked_ns"])), (&json!("sleep"), 40 * MS));
    let lock = &waits[1];
    assert_eq!((number(&lock["blocked_ns"]), number(&lock["count"]), number(&lock["records"])), (7 * MS, 10, 2));
    assert_eq!((number(&lock["max_ns"]), &lock["max_ref"]), (3 * MS, &json!(format!("sched:{}", START_NS + 10 * MS))));
    let clocks = answer["threads"].as_array().unwrap();
    assert_eq!(sum(&answer["threads"], "blocked_ns"), sum(&answer["waits"], "blocked_ns"));
    for clock in clocks {
        let parts = ["running_ns", "runqueue_ns", "blocked_ns"].map(|field| number(&clock[field]));
        assert_eq!(parts.iter().sum::<u64>(), number(&clock["wall_ns"]));
    }
}

#[test]
fn a_wait_names_what_it_was_for_who_ended_it_and_both_lines() {
    let answer = lock_and_sleep().ask("off_cpu", json!({"reason": "futex"}));
    let lock = &answer["waits"][0];
    assert_eq!((&lock["target_kind"], &lock["target"]), (&json!("lock"), &json!(HOSTILE)));
    assert_eq!((&lock["woken_by_tid"], &lock["woken_by_comm"]), (&json!(101), &json!(HOSTILE)));
    let line = |file: &str, line: &str, function: &str| json!([lock[file], lock[line], lock[function]]);
    assert_eq!(line("file", "line", "function"), json!(["/home/me/train.py", 142, "train"]), "where most time passed");
    let waker = line("waker_file", "waker_line", "waker_function");
    assert_eq!(waker, json!(["/home/me/train.py", 7, "hold"]));
    let taker = &answer["takers"][0];
    assert_eq!((&taker["tid"], &taker["taken_by_tid"], number(&taker["ns"])), (&json!(100), &json!(101), MS));
}

#[test]
fn a_thread_can_be_chosen_and_pages_hold_every_wait_once() {
    let scene = lock_and_sleep().finished();
    let page = |parameters| ask(&scene.path, "off_cpu", parameters).unwrap();
    let first = page(json!({"limit": 1}));
    let second = page(json!({"limit": 1, "after": first["next"]}));
    assert_eq!(second["next"], Value::Null);
    assert_ne!(first["waits"][0]["reason"], second["waits"][0]["reason"]);
    let worker = page(json!({"tid": 101}));
    assert_eq!(worker["waits"].as_array().unwrap().len(), 1);
    assert_eq!(worker["threads"].as_array().unwrap().len(), 1);
}

#[test]
fn an_answer_is_based_on_waits_where_there_are_no_calls() {
    let scene = lock_and_sleep().finished();
    for (part, records) in [(json!({}), 4), (json!({"pid": 100}), 4), (json!({"to": START_NS + 15 * MS}), 2)] {
        let answer = ask(&scene.path, "off_cpu", part).unwrap();
        assert_eq!(number(&answer["coverage"]["events"]), records, "{answer:#}");
    }
}

#[test]
fn a_recording_adds_up_to_its_clocks() {
    let answer = ask(&recording(), "off_cpu", json!({"limit": 1000})).unwrap();
    // Short waits after a thread's last record have none that stands for them.
    let (waits, clocks) = (sum(&answer["waits"], "blocked_ns"), sum(&answer["threads"], "blocked_ns"));
    assert!(waits <= clocks && waits > clocks / 1000 * 999, "{waits} {clocks}");
    let waits = answer["waits"].as_array().unwrap();
    let input = waits.iter().find(|wait| wait["target_kind"] == json!("pipe")).unwrap();
    assert_eq!(input["woken_by_comm"], json!("disk-loader"), "{input}");
}
