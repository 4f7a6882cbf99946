//! What a chain of evidence cites, looked up for who draws it elsewhere.

use gpuwhy_model::{
    Call, Edge, Evidence, Finding, IoRequest, KernelWork, RecordKind, Reference, Stretch, Victim, Wait, WaitReason,
    WorkKind,
};
use gpuwhy_questions::{Asked, Cited, CitedRecord, NoHost, Traces, cited_records};
use serde_json::json;

use crate::support::*;

fn finding(refs: &[Reference]) -> Finding {
    let mut finding: Finding = serde_json::from_value(json!({
        "id": "f1", "cause": "lock-wait", "title": "", "is_problem": true, "severity": "high", "confidence": 0.5,
        "summary": "", "impact": {"lost_ns": 1, "share": 0.25, "calls_affected": 1, "calls_total": 1},
        "victim": Victim { pid: 100, ..Victim::default() }, "symptom": null, "culprit": null, "where": [],
        "chain": [{"what": "", "evidence": "observed", "ns": 1, "refs": []}], "fix": [],
    }))
    .unwrap();
    let edge =
        |refs: &[Reference]| Edge { what: String::new(), evidence: Evidence::Observed, ns: 1, refs: refs.to_vec() };
    finding.chain = refs.chunks(2).map(edge).collect::<Vec<_>>().try_into().unwrap();
    finding
}

fn look_up(trace: &Finished, refs: &[Reference], most: usize) -> Cited {
    let traces = Traces::new([trace.path.clone()]);
    cited_records(&Asked::new(&traces, &NoHost), &finding(refs), most).unwrap()
}

/// A failed launch, a wait for a mutex inside of it, an ioctl and a read from a disk.
fn trace() -> (Finished, [Reference; 4]) {
    let mut scene = Scene::new();
    let wait = Wait { woken_by: Some(scene.worker), ..Wait::default() };
    let call = scene.call(scene.launch, 0, 5 * MS);
    let mut calls = [Call { runqueue_ns: MS, blocked_ns: 3 * MS, ret_code: 2, wait: Some(wait), ..call }];
    scene.writer.calls(&mut calls).unwrap();
    let stretch = scene.stretch(scene.thread, MS, WaitReason::Futex, 3 * MS);
    let stretch = Stretch { runqueue_ns: MS, op: Some(scene.launch), woken_by: Some(scene.worker), ..stretch };
    scene.writer.stretches(std::slice::from_ref(&stretch)).unwrap();
    let work = KernelWork {
        start_ns: START_NS + 20 * MS,
        thread: scene.worker,
        kind: WorkKind::Ioctl,
        duration_ns: 7 * MS,
        op: None,
        target: None,
        code: None,
        all_count: 1,
        all_ns: 7 * MS,
    };
    scene.writer.kernel_work(std::slice::from_ref(&work)).unwrap();
    let request = IoRequest {
        start_ns: START_NS + 30 * MS,
        duration_ns: 8 * MS,
        device: "nvme0n1".to_owned(),
        bytes: 4096,
        is_write: false,
        issuer: None,
        waiter: scene.worker,
    };
    scene.writer.io_requests(std::slice::from_ref(&request)).unwrap();
    for (key, value) in [("pod", "train-0"), ("container", "77aa")] {
        scene.writer.label(scene.process, key, value).unwrap();
    }
    let references = [calls[0].reference(), stretch.reference(), work.reference(), request.reference()];
    (scene.finished(), references)
}

#[test]
fn each_kind_of_record_comes_with_its_name_its_times_and_whose_it_is() {
    let (trace, references) = trace();
    let cited = look_up(&trace, &references, 30);
    let [call, wait, work, request] = references.map(|reference| &cited.records[&reference]);
    let times = |record: &CitedRecord| {
        (record.start_ns - START_NS, record.duration_ns, record.running_ns, record.runqueue_ns, record.blocked_ns)
    };
    assert_eq!(times(call), (0, 5 * MS, Some(MS), Some(MS), Some(3 * MS)));
    assert_eq!((&*call.name, call.error, call.device.as_deref()), ("cuLaunchKernel", Some(2), Some("0")));
    assert_eq!((call.pid, call.tid, call.woken_by_tid), (100, 100, Some(101)));
    assert_eq!(times(wait), (MS, 4 * MS, Some(0), Some(MS), Some(3 * MS)));
    assert_eq!((&*wait.name, wait.function.as_deref(), wait.error), ("futex wait", Some("cuLaunchKernel"), None));
    assert_eq!(times(work), (20 * MS, 7 * MS, None, None, None));
    assert_eq!((&*work.name, work.tid, &*work.comm), ("ioctl", 101, HOSTILE));
    assert_eq!(times(request), (30 * MS, 8 * MS, None, None, None));
    assert_eq!((&*request.name, request.bytes, request.device.as_deref()), ("disk read", Some(4096), Some("nvme0n1")));
    let process = &cited.processes[&100];
    assert_eq!((&*process.comm, &*process.labels["pod"], &*process.labels["container"]), ("python", "train-0", "77aa"));
}

#[test]
fn what_is_not_in_the_trace_any_more_is_left_out_and_no_more_is_read_than_was_asked_for() {
    let (trace, references) = trace();
    let gone = RecordKind::Sched.at(7);
    let cited = look_up(&trace, &[gone, references[0], references[1]], 2);
    assert_eq!(cited.records.into_keys().collect::<Vec<_>>(), [references[0]]);
    assert!(look_up(&trace, &[gone], 30).processes.contains_key(&100), "the victim is known all the same");
}
