//! What was seen and lost, and what the tracer took.

use gpuwhy_model::{
    AgentUsage, Calibration, CallStats, LossReason, Losses, Note, NoteKind, Rung, RungChange, Session, ThreadTimes,
};
use serde_json::json;

use crate::support::*;

fn sampled() -> Scene {
    let calibrations = vec![Calibration { what: "counted call".into(), ns: 950.5 }];
    let mut scene =
        Scene::with(&Session { started_ns: START_NS, budget: Some(0.01), calibrations, ..Session::default() });
    let burst = CallStats { fraction: 0.1, estimate: 1000, variance: 100.0, ..scene.stats(scene.launch, 0, 100, US) };
    scene.writer.stats(&[burst, scene.stats(scene.sync, 0, 5, US)]).unwrap();
    for (at, rung, fraction) in [(1, Rung::SlowOnly, 1.0), (2, Rung::Bursts, 0.1)] {
        let (process, op, reason) = (scene.process, scene.launch, "it costs too much".to_owned());
        let change = RungChange { at_ns: START_NS + at * MS, process, op, rung, fraction, reason };
        scene.writer.rung_change(&change).unwrap();
    }
    let times = |second, tracer_ns| ThreadTimes { tracer_ns, ..scene.second(scene.thread, second, &[]) };
    let times = [times(0, 4 * MS), times(1, 20 * MS)];
    scene.writer.thread_times(&times).unwrap();
    for second in 0..10 {
        let (bucket_ns, wall_ns) = (START_NS + second * S, S);
        let usage = AgentUsage { bucket_ns, wall_ns, cpu_ns: 3 * MS, hooks_ns: MS, call_program_ns: 300 };
        scene.writer.agent_usage(&usage).unwrap();
    }
    let mut losses = Losses::default();
    losses.set(LossReason::RingFull, 3);
    losses.set(LossReason::Abandoned, 5);
    scene.writer.losses(&losses).unwrap();
    scene.writer.note(START_NS, &Note::new(NoteKind::Other, HOSTILE)).unwrap();
    scene
}

#[test]
fn losses_come_with_what_they_mean() {
    let mut scene = sampled();
    // As long as the tracer runs, losses are those so far.
    scene.writer.commit(START_NS + S).unwrap();
    let answer = ask(&scene.path, "coverage", json!({})).unwrap();
    let losses = answer["losses"].as_array().unwrap();
    assert_eq!(losses.len(), 2);
    assert_eq!((&losses[0]["reason"], &losses[0]["is_call"]), (&json!("abandoned"), &json!(false)));
    assert_eq!((&losses[1]["count"], &losses[1]["is_call"]), (&json!(3), &json!(true)));
    assert!(losses[1]["meaning"].as_str().unwrap().contains("ring buffer full"));
    assert_eq!(answer["warnings"][0]["text"], json!(HOSTILE));
}

#[test]
fn a_function_that_was_sampled_has_its_fraction_and_its_error() {
    let answer = sampled().ask("coverage", json!({}));
    let sampled = answer["sampled"].as_array().unwrap();
    assert_eq!(sampled.len(), 1, "what was always seen is not sampled");
    let launches = &sampled[0];
    assert_eq!((number(&launches["seen"]), number(&launches["estimate"])), (100, 1000));
    assert_eq!(launches["fraction"], json!(0.1));
    assert!((launches["error_95"].as_f64().unwrap() - 19.6).abs() < 1e-9);
    let rungs: Vec<_> = answer["rungs"].as_array().unwrap().iter().map(|change| change["rung"].clone()).collect();
    assert_eq!(rungs, [json!("slow-only"), json!("bursts")]);
}

#[test]
fn the_tracers_own_cost_is_told_against_its_budget() {
    let answer = sampled().ask("coverage", json!({}));
    assert_eq!(answer["sessions"][0]["budget"], json!(0.01));
    assert_eq!(answer["calibrations"], json!([{"session_id": 1, "what": "counted call", "ns": 950.5}]));
    let thread = &answer["threads"][0];
    assert_eq!((&thread["share"], &thread["worst_share"]), (&json!(0.012), &json!(0.02)));
    assert_eq!(number(&thread["worst_ns"]), START_NS + S);
    assert_eq!(answer["agent"].as_array().unwrap().len(), 10);
    assert_eq!((sum(&answer["agent"], "cpu_ns"), sum(&answer["agent"], "hooks_ns")), (30 * MS, 10 * MS));
}

#[test]
fn rung_changes_come_in_pages() {
    let scene = sampled().finished();
    let first = ask(&scene.path, "coverage", json!({"limit": 1})).unwrap();
    assert_eq!((first["rungs"].as_array().unwrap().len(), &first["next"]), (1, &json!("1")));
    let second = ask(&scene.path, "coverage", json!({"limit": 1, "after": "1"})).unwrap();
    assert_eq!((&second["rungs"][0]["rung"], &second["next"]), (&json!("bursts"), &json!(null)));
}
