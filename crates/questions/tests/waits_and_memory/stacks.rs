//! Stacks ranked by time.

use gpuwhy_model::{Call, PythonEnd, StackMoment, StackSample, StackWalks, Stretch, WaitReason, WalkEnd};
use serde_json::{Value, json};

use crate::support::*;

fn with_stacks() -> Scene {
    let mut scene = Scene::new();
    let (slow, fast, hostile) = (scene.stack("train", 142), scene.stack("log", 9), scene.stack(HOSTILE, 1));
    let call = |offset, ns, stack_id| Call { stack_id, ..scene.call(scene.launch, offset, ns) };
    let alloc = Call { op: scene.alloc, ..call(5, 1, Some(hostile)) };
    let mut calls = [
        call(1, 700 * US, Some(slow)),
        call(2, 100 * US, Some(fast)),
        call(3, 200 * US, Some(slow)),
        alloc,
        call(9, 50, None),
    ];
    scene.writer.calls(&mut calls).unwrap();
    scene.writer.stats(&[scene.stats(scene.launch, 0, 10, 200 * US)]).unwrap();
    let wait =
        Stretch { stack: Some(fast), waker_stack: Some(slow), ..scene.stretch(scene.thread, 7, WaitReason::Io, MS) };
    scene.writer.stretches(&[wait]).unwrap();
    let sample = |stack, count| StackSample { bucket_ns: START_NS, thread: scene.worker, stack, count };
    scene.writer.stack_samples(&[sample(slow, 3), sample(fast, 1)]).unwrap();
    let (end, python_end) = (WalkEnd::Complete, PythonEnd::Complete);
    let walks = StackWalks { bucket_ns: START_NS, moment: StackMoment::Call, end, python_end, count: 4, ns: 9 };
    scene.writer.stack_walks(&[walks]).unwrap();
    scene
}

fn lines(answer: &Value) -> Vec<Value> {
    answer["stacks"].as_array().unwrap().iter().map(|stack| stack["site"]["line"].clone()).collect()
}

#[test]
fn calls_are_ranked_by_their_time_with_the_users_own_line() {
    let answer = with_stacks().ask("stacks", json!({"op": "cuLaunchKernel"}));
    assert_eq!((number(&answer["total_ns"]), number(&answer["total_count"])), (MS, 3));
    assert_eq!(number(&answer["with_and_without_ns"]), 2 * MS, "ten calls were counted");
    assert_eq!(lines(&answer), [142, 9]);
    let first = &answer["stacks"][0];
    assert_eq!((number(&first["ns"]), number(&first["count"]), &first["share"]), (900 * US, 2, &json!(0.9)));
    assert_eq!((&first["end"], &first["python_end"]), (&json!("complete"), &json!("complete")));
    let functions: Vec<&Value> = first["frames"].as_array().unwrap().iter().map(|frame| &frame["function"]).collect();
    assert_eq!(functions, [&json!("cuMemAlloc"), &json!("train")], "outermost last");
    let walks = json!([{"moment": "call", "end": "complete", "python_end": "complete", "count": 4}]);
    assert_eq!(answer["coverage"]["stacks"], walks);
}

#[test]
fn waits_wakers_and_running_threads_have_stacks_of_their_own() {
    let scene = with_stacks().finished();
    let of = |of: &str| ask(&scene.path, "get_stacks", json!({ "of": of })).unwrap();
    assert_eq!(lines(&of("waits")), [9]);
    assert_eq!(lines(&of("wakers")), [142]);
    let running = of("running");
    assert_eq!(lines(&running), [142, 9]);
    assert_eq!((&running["total_ns"], &running["total_count"]), (&Value::Null, &json!(4)));
    assert_eq!((&running["stacks"][0]["ns"], &running["stacks"][0]["share"]), (&Value::Null, &json!(0.75)));
    let other = ask(&scene.path, "stacks", json!({"of": "running", "tid": 100})).unwrap();
    assert_eq!(lines(&other), Vec::<Value>::new());
    let refused = ask(&scene.path, "stacks", json!({"of": "running", "op": "cuLaunchKernel"})).unwrap_err();
    assert_eq!(refused.code(), "bad_parameters");
}

#[test]
fn folded_lines_stay_lines_whatever_a_function_is_called() {
    let answer = with_stacks().ask("stacks", json!({"folded": true, "limit": 1}));
    assert_eq!(answer["stacks"].as_array().unwrap().len(), 1);
    assert_eq!(answer["next"], json!("1"));
    let lines = answer["folded"]["lines"].as_array().unwrap();
    assert_eq!(lines, &[json!("log (train.py:9);cuMemAlloc 100"), json!("train (train.py:142);cuMemAlloc 900")]);
    assert!((answer["folded"]["share"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let running = with_stacks().ask("stacks", json!({"folded": true, "of": "running"}));
    assert_eq!(running["folded"]["lines"][0], json!("log (train.py:9);cuMemAlloc 1"), "samples, not microseconds");
    let mut scene = with_stacks();
    let hostile = Some(scene.stack(HOSTILE, 1));
    let mut slow = [Call { stack_id: hostile, ..scene.call(scene.alloc, 50, 900 * US) }];
    scene.writer.calls(&mut slow).unwrap();
    let answer = scene.ask("stacks", json!({"folded": true, "op": "cuMemAlloc"}));
    let line = answer["folded"]["lines"][0].as_str().unwrap();
    assert_eq!((line.matches(';').count(), line.contains('\u{1b}')), (1, false), "{line}");
}
