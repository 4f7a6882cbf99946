//! `timeline`: what is drawn, and how much of it.

use gpuwhy_model::{Call, StandsFor, Stretch};
use serde_json::{Value, json};

use crate::small::{Finished, MS, START_NS, Small, array, ask, ask_all};

fn numbers(item: &Value) -> Vec<i64> {
    item.as_array().unwrap().iter().map(|number| number.as_i64().unwrap()).collect()
}

fn items(answer: &Value, lane: usize, of: &str) -> Vec<Vec<i64>> {
    array(answer, &format!("/lanes/{lane}/{of}")).iter().map(numbers).collect()
}

fn tids(answer: &Value) -> Vec<u64> {
    array(answer, "/lanes").iter().map(|lane| lane["tid"].as_u64().unwrap()).collect()
}

fn name<'v>(answer: &'v Value, table: &str, index: i64) -> &'v str {
    answer[table][index as usize].as_str().unwrap()
}

/// A second in which the main thread launches, and waits 100 ms for the loader, who waits itself.
fn fed() -> Finished {
    let mut small = Small::new();
    let launches = (0..1000).map(|at| small.call(small.launch, at * 10_000, 3000 + at));
    let calls: Vec<Call> = launches.chain([small.call(small.sync, 500 * MS, 200 * MS)]).collect();
    small.write(calls);
    let own = Stretch { thread: small.loader, ..small.wait(510 * MS, 40 * MS, None) };
    small.writer.stretches(&[small.wait(505 * MS, 100 * MS, Some(small.loader)), own]).unwrap();
    let launches = small.second(small.launch, 0, 1000, 3500);
    small.writer.stats(&[launches, small.second(small.sync, 0, 1, 200 * MS)]).unwrap();
    small.finish(1)
}

#[test]
fn threads_that_launch_come_first_and_then_those_that_end_their_waits() {
    let trace = fed();
    let answer = ask(&trace.path, "timeline", json!({}));
    assert_eq!(tids(&answer), [100, 200]);
    let [main, loader] = array(&answer, "/lanes") else { panic!() };
    assert_eq!((&main["is_dispatcher"], &loader["is_dispatcher"]), (&json!(true), &json!(false)));
    assert_eq!((&main["calls_count"], &main["off_cpu_ns"]), (&json!(1001), &json!(100 * MS)));
    assert_eq!(loader["process_comm"], "loader");
}

#[test]
fn nothing_narrower_than_a_pixel_is_sent_and_nothing_is_lost() {
    let trace = fed();
    let answer = ask(&trace.path, "timeline", json!({"width": 100}));
    assert_eq!(answer["pixel_ns"], 10 * MS + 1, "a second and its last nanosecond");
    let calls = items(&answer, 0, "calls");
    assert_eq!(calls.len(), 2, "{calls:?}");
    let (launches, sync) = (&calls[0], &calls[1]);
    assert_eq!((launches[0], launches[5]), (0, 1000));
    assert_eq!(launches[1], 999 * 10_000 + 3999, "to the end of the last one");
    assert_eq!(launches[4], 999 * 10_000, "the longest one's record");
    assert_eq!(name(&answer, "ops", launches[3]), "cuLaunchKernel");
    assert_eq!(name(&answer, "classes", launches[2]), "launch");
    assert_eq!(*sync, [500 * MS as i64, 200 * MS as i64, sync[2], sync[3], 500 * MS as i64, 1]);
    assert_eq!(name(&answer, "ops", sync[3]), "cuStreamSynchronize");
}

#[test]
fn the_record_behind_an_item_can_be_asked_for() {
    let trace = fed();
    let answer = ask(&trace.path, "timeline", json!({}));
    let from_ns: i64 = answer["from_ns_text"].as_str().unwrap().parse().unwrap();
    assert_eq!(json!(from_ns), answer["window"]["from_ns"]);
    for (kind, of, id) in [("cuda", "calls", 4), ("sched", "waits", 5)] {
        for item in items(&answer, 0, of) {
            let record = ask(&trace.path, "record", json!({"ref": format!("{kind}:{}", from_ns + item[id])}));
            assert_eq!(record["record"]["tid"], 100);
        }
    }
}

#[test]
fn a_wait_says_why_and_who_ended_it() {
    let trace = fed();
    let answer = ask(&trace.path, "timeline", json!({}));
    let waits = items(&answer, 0, "waits");
    let [wait] = &waits[..] else { panic!("{waits:?}") };
    assert_eq!(wait[..3], [505 * MS as i64, 100 * MS as i64, 0]);
    assert_eq!((name(&answer, "reasons", wait[3]), wait[4]), ("futex", 1));
    assert_eq!(answer["wakes"], json!([[1, 0, 605 * MS]]));
    assert_eq!(items(&answer, 1, "waits")[0][4], -1, "nobody is known to have ended it");
}

#[test]
fn a_closer_look_shows_single_calls_and_what_began_before() {
    let trace = fed();
    let (from, to) = (START_NS + 600 * MS, START_NS + 601 * MS);
    let answer = ask(&trace.path, "timeline", json!({"from": from, "to": to}));
    assert_eq!(tids(&answer), [100, 200], "the loader is to end the wait that goes on");
    assert!(items(&answer, 1, "waits").is_empty(), "its own is over");
    let calls = items(&answer, 0, "calls");
    assert_eq!(calls[0][..2], [-100 * MS as i64, 200 * MS as i64], "the sync is still under way");
    assert_eq!(items(&answer, 0, "waits")[0][0], -95 * MS as i64);
    let closer = json!({"from": START_NS, "to": START_NS + MS, "width": 1000});
    assert_eq!(items(&ask(&trace.path, "timeline", closer), 0, "calls").len(), 100, "one for each call");
}

#[test]
fn lanes_can_be_named_and_their_number_is_bounded() {
    let trace = fed();
    let answer = ask(&trace.path, "timeline", json!({"lanes": [200, 101, 100]}));
    assert_eq!(tids(&answer), [200, 101, 100]);
    let answer = ask(&trace.path, "timeline", json!({"most_lanes": 1}));
    assert_eq!((tids(&answer), &answer["lanes_left_out"]), (vec![100], &json!(1)));
    assert_eq!(items(&answer, 0, "waits")[0][4], -1, "its waker has no lane");
    for wrong in [json!({"width": 99}), json!({"width": 4001}), json!({"most_lanes": 0}), json!({"most_lanes": 101})] {
        assert_eq!(ask_all(&[&trace.path], "timeline", wrong).unwrap_err().code(), "bad_parameters");
    }
}

#[test]
fn of_a_process_its_threads_are_drawn_and_whoever_ends_their_waits() {
    let trace = fed();
    assert_eq!(tids(&ask(&trace.path, "timeline", json!({"pid": 100}))), [100, 200]);
    assert_eq!(tids(&ask(&trace.path, "timeline", json!({"pid": 200}))), [200]);
}

#[test]
fn time_off_the_cpu_counts_stretches_without_a_record_too() {
    let mut small = Small::new();
    let all = StandsFor { count: 5, blocked_ns: 5 * MS, runqueue_ns: MS };
    let preempted = Stretch { reason: None, blocked_ns: 0, runqueue_ns: MS, all, ..small.wait(MS, 0, None) };
    small.writer.stretches(&[preempted]).unwrap();
    let trace = small.finish(1);
    let answer = ask(&trace.path, "timeline", json!({}));
    assert_eq!(answer["lanes"][0]["off_cpu_ns"], 6 * MS);
    let wait = &items(&answer, 0, "waits")[0];
    assert_eq!((wait[2], name(&answer, "reasons", wait[3])), (MS as i64, "preempted"));
}
