//! `audit` and `record`: single calls and waits.

use gpuwhy_model::{Call, Direction, Stretch};
use serde_json::{Value, json};

use crate::small::{Finished, MS, START_NS, Small, array, ask, ask_all};

fn offsets(answer: &Value) -> Vec<u64> {
    array(answer, "/calls").iter().map(|call| call["timestamp_ns"].as_u64().unwrap() - START_NS).collect()
}

/// Five calls, one every millisecond; the third is another thread's, the fourth failed.
fn five(small: &mut Small) {
    let call = |at: u64| small.call(small.launch, at * MS, 1000);
    let other = Call { thread: small.worker, ..call(2) };
    let failed = Call { ret_code: 2, op: small.alloc, bytes: Some(4096), ..call(3) };
    let calls = [call(0), call(1), other, failed, call(4)];
    small.write(calls);
}

#[test]
fn every_call_is_told_with_who_made_it_and_what_came_of_it() {
    let mut small = Small::new();
    let stack = small.stack("train.py", 42);
    let call = Call {
        device: Some(0),
        stream: Some(u64::MAX),
        bytes: Some(1 << 20),
        direction: Some(Direction::HostToDevice),
        ret_code: 700,
        stack_id: Some(stack),
        ..small.call(small.launch, MS, 5000)
    };
    small.write([call]);
    let trace = small.finish(1);
    let answer = ask(&trace.path, "audit", json!({"pid": 100}));
    let [call] = array(&answer, "/calls") else { panic!("{answer}") };
    assert_eq!(call["ref"], format!("cuda:{}", START_NS + MS));
    assert_eq!([&call["pid"], &call["tid"], &call["device"], &call["ret_code"]], [100, 100, 0, 700]);
    assert_eq!([&call["op"], &call["runtime_op"]], ["cuLaunchKernel", "cudaLaunchKernel"]);
    assert_eq!([&call["direction"], &call["stream"]], ["HtoD", "0xffffffffffffffff"]);
    assert_eq!([&call["caller"], &call["file"], &call["function"]], ["/lib/libcudart.so.12", "train.py", "forward"]);
    assert_eq!((&call["line"], &call["bytes"]), (&json!(42), &json!(1 << 20)));
}

#[test]
fn pages_follow_each_other_while_the_trace_grows() {
    let mut small = Small::new();
    five(&mut small);
    small.writer.commit(START_NS + 5 * MS).unwrap();
    let first = ask(&small.path, "audit", json!({"limit": 2}));
    assert_eq!(offsets(&first), [0, MS]);
    let second = ask(&small.path, "audit", json!({"limit": 3, "after": first["next"]}));
    assert_eq!(offsets(&second), [2 * MS, 3 * MS, 4 * MS]);
    assert_eq!(second["next"], Value::Null);
    small.write([small.call(small.launch, 6 * MS, 1000)]);
    small.writer.commit(START_NS + 7 * MS).unwrap();
    let third = ask(&small.path, "audit", json!({"after": second["last"]}));
    assert_eq!(offsets(&third), [6 * MS]);
    let none = ask(&small.path, "audit", json!({"after": third["last"]}));
    assert_eq!((offsets(&none).len(), &none["last"]), (0, &third["last"]));
}

#[test]
fn the_log_can_be_of_a_thread_a_function_or_of_failures() {
    let mut small = Small::new();
    five(&mut small);
    let trace = small.finish(1);
    let of = |parameters| offsets(&ask(&trace.path, "audit", parameters));
    assert_eq!(of(json!({"tid": 101})), [2 * MS]);
    assert_eq!(of(json!({"failed": true})), [3 * MS]);
    assert_eq!(of(json!({"op": "cudaMalloc"})), [3 * MS]);
    assert_eq!(of(json!({"pid": 200})), [0; 0]);
    assert_eq!(of(json!({"from": START_NS + 4 * MS})), [4 * MS]);
}

#[test]
fn the_log_says_how_many_calls_have_no_record() {
    let mut small = Small::new();
    five(&mut small);
    small.writer.stats(&[small.second(small.launch, 0, 50, 1000)]).unwrap();
    let trace = small.finish(1);
    let answer = ask(&trace.path, "audit", json!({}));
    assert_eq!(answer["kept"], json!({"kept": 5, "made": 50, "share": 0.1}));
}

fn recorded() -> Finished {
    let mut small = Small::new();
    let (stack, waker_stack) = (small.stack("train.py", 42), small.stack("loader.py", 7));
    let call = Call {
        handle: Some(u64::MAX - 1),
        stack_id: Some(stack),
        parent_start_ns: Some(START_NS),
        ..small.call(small.launch, 10, 5000)
    };
    small.write([small.call(small.sync, 0, 9000), call]);
    let wait =
        Stretch { stack: Some(stack), waker_stack: Some(waker_stack), ..small.wait(MS, 3 * MS, Some(small.loader)) };
    small.writer.stretches(&[wait]).unwrap();
    small.finish(1)
}

fn record(trace: &Finished, kind: &str, offset_ns: u64) -> Value {
    ask(&trace.path, "record", json!({"ref": format!("{kind}:{}", START_NS + offset_ns)}))
}

#[test]
fn a_record_is_told_in_full_with_its_stack() {
    let trace = recorded();
    let answer = record(&trace, "cuda", 10);
    assert_eq!(answer["view"], "cuda_events");
    assert_eq!(answer["record"]["duration_ns"], 5000);
    assert_eq!(answer["record"]["handle"], "0xfffffffffffffffe");
    assert_eq!(answer["record"]["parent_ref"], format!("cuda:{START_NS}"));
    let frames = array(&answer, "/stack/frames");
    assert_eq!([&frames[0]["function"], &frames[1]["file"]], ["cuLaunchKernel", "train.py"], "innermost first");
    assert_eq!((&answer["stack"]["site"], &answer["stack"]["end"]), (&json!(1), &json!("complete")));
    assert_eq!(answer["waker_stack"], Value::Null);
}

#[test]
fn a_wait_also_tells_what_its_waker_was_doing() {
    let trace = recorded();
    let answer = record(&trace, "sched", MS);
    assert_eq!([&answer["record"]["blocked_on"], &answer["record"]["woken_by_comm"]], ["futex", "loader"]);
    assert_eq!(array(&answer, "/stack/frames")[1]["file"], "train.py");
    assert_eq!(array(&answer, "/waker_stack/frames")[1]["file"], "loader.py");
}

#[test]
fn what_is_not_there_is_not_found_and_what_is_no_record_is_refused() {
    let trace = recorded();
    let code = |name: &str| {
        let error = ask_all(&[&trace.path], "record", json!({"ref": name})).unwrap_err();
        error.code()
    };
    for missing in ["cuda:5", "sched:1", "kernel:1", "io:1"] {
        assert_eq!(code(missing), "not_found", "{missing}");
    }
    for wrong in ["", "cuda", "cuda:", "cuda:-5", "tcp:5", "cuda:99999999999999999999", "cuda:1 OR 1", "CUDA:5"] {
        assert_eq!(code(wrong), "bad_parameters", "{wrong}");
    }
}
