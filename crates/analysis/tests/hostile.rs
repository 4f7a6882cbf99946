//! Whatever a file says, an explanation comes back: no panic, no endless loop, and parts that add up.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use gpuwhy_analysis::explain;
use gpuwhy_model::{
    Call, CallClass, CpuTaker, Evidence, Explanation, GraphStep, Histogram, IoRequest, IoUsage, KernelWork, Layer,
    LifeKind, Meaning, ModuleId, OpId, Process, ProcessId, ProcessLife, Span, StandsFor, Stretch, TargetId, TargetKind,
    ThreadId, ThreadTimes, WaitReason, WaitTarget, WorkKind,
};
use gpuwhy_window::{CallSecond, CallSum, Covered, Life, Op, Thread, ThreadSum, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use support::*;

#[test]
fn an_empty_window_says_why_it_has_no_answer() {
    let explanation = explain(&Window::default());
    assert_eq!(explanation.findings, []);
    assert_eq!(explanation.coverage.unattached, ["nothing was traced in this span"]);
}

#[test]
fn a_process_that_was_not_asked_about_is_not_explained() {
    let mut scene = training(|_, _, _| {});
    scene.window.pid = Some(1);
    let explanation = scene.explained();
    assert_eq!(explanation.threads, []);
    let why = &explanation.coverage.unattached[0];
    assert_eq!(why, "no thread of process 1 launched work on a GPU regularly in this span");
}

#[test]
fn a_thread_that_launched_only_at_its_start_does_not_feed_the_gpu() {
    let mut scene = Scene::new(60 * S);
    let thread = scene.program(4711, "python");
    scene.step(thread, 0, 100, MS);
    assert_eq!(scene.explained().threads, []);
}

#[test]
fn rows_in_any_order_and_twice_give_the_same_first_cause() {
    let mut scene = training(|scene, thread, at| {
        scene.stretch(thread, at, Off::blocked(WaitReason::Io, 6 * MS));
    });
    let again = scene.window.stretches.rows.clone();
    scene.window.stretches.rows.extend(again);
    let mut window = scene.finished();
    window.stretches.rows.reverse();
    let explanation = explain(&window);
    assert_eq!(explanation.findings[0].cause, "io-wait");
    assert_eq!(explanation.findings[0].impact.share, 0.3);
}

#[test]
fn numbers_that_were_used_again_do_not_mix_two_threads_up() {
    let mut held = None;
    let explanation = training(|scene, thread, at| {
        let (_, holder, lock) = *held.get_or_insert_with(|| {
            (scene.program(77, "gone"), scene.program(77, "holder"), scene.target(TargetKind::Lock, "0x7f00"))
        });
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 4 * MS, lock, holder));
    })
    .explained();
    let finding = only(&explanation, "lock-wait");
    assert_eq!(finding.culprit.as_ref().map(|culprit| culprit.comm.as_str()), Some("holder"));
}

#[test]
fn a_wait_that_never_ended_is_on_the_clock_and_blames_nobody() {
    let mut scene = training(|_, _, _| {});
    let thread = scene.window.calls.rows[0].thread;
    let wall_ns = scene.times(thread).wall_ns;
    scene.times(thread).blocked_ns[WaitReason::Futex as usize] = wall_ns * 2 / 5;
    let explanation = scene.explained();
    let waits = explanation.findings.iter().filter(|finding| finding.cause == "lock-wait");
    for finding in waits {
        assert!(finding.culprit.is_none() && finding.confidence <= 0.5, "{finding:#?}");
        assert_eq!(finding.chain.weakest(), Evidence::Missing);
    }
}

#[test]
fn a_clock_that_was_set_back_changes_no_blame() {
    let mut held = None;
    let mut scene = training(|scene, thread, at| {
        let (holder, lock) =
            *held.get_or_insert_with(|| (scene.program(7, "holder"), scene.target(TargetKind::Lock, "0x7f00")));
        scene.stretch(thread, at, Off::on(WaitReason::Futex, 4 * MS, lock, holder));
    });
    let half = scene.window.stretches.rows.len() / 2;
    for stretch in &mut scene.window.stretches.rows[half..] {
        stretch.start_ns = stretch.start_ns.saturating_sub(3_600_000 * MS);
    }
    let explanation = scene.explained();
    let finding = only(&explanation, "lock-wait");
    assert_eq!(finding.culprit.as_ref().map(|culprit| culprit.comm.as_str()), Some("holder"));
}

#[test]
fn what_is_ruled_out_says_when_calls_were_not_seen() {
    let mut window = training(|_, _, _| {}).finished();
    let launches = window.call_sums.iter_mut().find(|sum| sum.op == op("cuLaunchKernel")).unwrap();
    launches.calls *= 10;
    let explanation = explain(&window);
    let why = &explanation.ruled_out.iter().find(|one| one.cause == "launch-bound").unwrap().why;
    assert!(why.ends_with("; a gap in the trace: 10 % of these calls were seen"), "{why}");
    assert_eq!(explanation.coverage.sampled[0].fraction, 0.1);
}

/// Times around the window's, far away, and absurd.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => START_NS..START_NS + 10 * S, 1 => Just(0), 1 => any::<u64>()]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..200 * MS, 1 => Just(0), 1 => any::<u64>()]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..10_000u64, 1 => any::<u64>()]
}

/// Some ids are of nothing.
fn thread() -> impl Strategy<Value = ThreadId> {
    (0..6u32).prop_map(ThreadId)
}

fn op_id() -> impl Strategy<Value = OpId> {
    (0..14u32).prop_map(OpId)
}

fn pick<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(move |at| all[at])
}

fn stretch() -> impl Strategy<Value = Stretch> {
    let taker = || proptest::option::of((thread(), length()).prop_map(|(thread, ns)| CpuTaker { thread, ns }));
    let what = (proptest::option::of(pick(WaitReason::ALL)), proptest::option::of(op_id()), any::<bool>());
    let who = (proptest::option::of((0..8u32).prop_map(TargetId)), proptest::option::of(thread()), taker(), taker());
    (time(), thread(), length(), length(), what, who, (count(), length(), length())).prop_map(
        |(start_ns, thread, blocked_ns, runqueue_ns, (reason, op, is_throttled), (target, woken_by, one, two), all)| {
            let all = StandsFor { count: all.0, blocked_ns: all.1, runqueue_ns: all.2 };
            let taken_by = [one, two];
            let times = (start_ns, blocked_ns, runqueue_ns);
            let (start_ns, blocked_ns, runqueue_ns) = times;
            Stretch {
                start_ns,
                thread,
                blocked_ns,
                runqueue_ns,
                is_throttled,
                reason,
                op,
                target,
                woken_by,
                taken_by,
                all,
                stack: None,
                waker_stack: None,
            }
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let operands = (proptest::option::of(0..4u64), proptest::option::of(count()), proptest::option::of(0..9u64));
    (time(), length(), length(), thread(), op_id(), operands, 0..3i32).prop_map(
        |(start_ns, duration_ns, blocked_ns, thread, op, (handle, bytes, address), ret_code)| Call {
            runqueue_ns: blocked_ns / 2,
            blocked_ns,
            handle,
            caller: Some(ModuleId(1)),
            bytes,
            address,
            ret_code,
            ..Call::new(thread, op, start_ns, duration_ns)
        },
    )
}

fn call_sum() -> impl Strategy<Value = CallSum> {
    let buckets = vec((any::<u8>(), count()), 0..4);
    (thread(), op_id(), (count(), count()), (length(), length(), length(), length()), (count(), count()), buckets)
        .prop_map(|(thread, op, (seen, calls), (sum_ns, runqueue_ns, blocked_ns, max_ns), (bytes, errors), buckets)| {
            let mut histogram = Histogram::default();
            buckets.into_iter().for_each(|(index, count)| histogram.add(index, count));
            let seconds = calls % 10;
            CallSum {
                thread,
                op,
                seen,
                calls,
                sum_ns,
                runqueue_ns,
                blocked_ns,
                bytes,
                errors,
                max_ns,
                histogram,
                seconds,
            }
        })
}

fn call_second() -> impl Strategy<Value = CallSecond> {
    (time(), thread(), op_id(), count(), length(), count()).prop_map(
        |(bucket_ns, thread, op, calls, sum_ns, errors)| CallSecond {
            bucket_ns,
            thread,
            op,
            seen: calls,
            calls,
            sum_ns,
            max_ns: sum_ns,
            errors,
        },
    )
}

fn thread_sum() -> impl Strategy<Value = ThreadSum> {
    let blocked = proptest::array::uniform8(length());
    (time(), thread(), (length(), length(), length()), blocked, proptest::array::uniform3(length()), 0..20u64).prop_map(
        |(bucket_ns, thread, (wall_ns, runqueue_ns, throttled_ns), blocked_ns, work_ns, seconds)| {
            let times = ThreadTimes {
                bucket_ns,
                thread,
                wall_ns,
                runqueue_ns,
                blocked_ns,
                in_calls_ns: wall_ns / 2,
                in_calls_runqueue_ns: 0,
                in_calls_blocked_ns: 0,
                tracer_ns: 0,
                throttled_ns,
                work_ns,
                major_faults: 3,
                minor_faults: 5,
                system_ns: wall_ns / 3,
            };
            ThreadSum { times, last_bucket_ns: bucket_ns.saturating_add(seconds * S), seconds }
        },
    )
}

fn kernel_work() -> impl Strategy<Value = KernelWork> {
    (time(), thread(), pick(WorkKind::ALL), length(), proptest::option::of(op_id()), count(), length()).prop_map(
        |(start_ns, thread, kind, duration_ns, op, all_count, all_ns)| KernelWork {
            start_ns,
            thread,
            kind,
            duration_ns,
            op,
            target: None,
            code: None,
            all_count,
            all_ns,
        },
    )
}

fn io() -> impl Strategy<Value = (IoRequest, IoUsage)> {
    (time(), length(), thread(), 0..4u32, count()).prop_map(|(start_ns, duration_ns, waiter, process, requests)| {
        let device = "vda".to_owned();
        let usage = IoUsage {
            bucket_ns: start_ns,
            process: ProcessId(process),
            device: device.clone(),
            requests,
            bytes: requests,
            busy_ns: duration_ns,
        };
        let request =
            IoRequest { start_ns, duration_ns, device, bytes: requests, is_write: false, issuer: None, waiter };
        (request, usage)
    })
}

fn life() -> impl Strategy<Value = ProcessLife> {
    (time(), pick(LifeKind::ALL), 0..5u32, proptest::option::of(0..5u32)).prop_map(|(at_ns, kind, pid, child_pid)| {
        ProcessLife { at_ns, kind, pid, child_pid, status: Some(9), comm: "\u{1b}[31m".into() }
    })
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    vec((time(), length()).prop_map(|(from_ns, ns)| Span { from_ns, to_ns: from_ns.saturating_add(ns) }), 0..3)
}

/// Two threads that launch, so that rules have somebody to ask about.
fn feed(window: &mut Window) {
    for thread in [ThreadId(1), ThreadId(2)] {
        let launches = CallSum {
            thread,
            op: OpId(0),
            seen: 1000,
            calls: 1000,
            sum_ns: S,
            runqueue_ns: 0,
            blocked_ns: 0,
            bytes: 0,
            errors: 0,
            max_ns: MS,
            histogram: Histogram::default(),
            seconds: 20,
        };
        window.call_sums.push(launches);
    }
}

prop_compose! {
    fn window()(
        (from_ns, to_ns, spans, watched) in (time(), time(), spans(), spans()),
        stretches in vec(stretch(), 0..60),
        (calls, memory_calls) in (vec(call(), 0..60), vec(call(), 0..30)),
        (call_sums, call_seconds) in (vec(call_sum(), 0..20), vec(call_second(), 0..20)),
        thread_sums in vec(thread_sum(), 0..6),
        kernel_work in vec(kernel_work(), 0..20),
        io in vec(io(), 0..10),
        life in vec((0u16..3, life()).prop_map(|(host, turn)| Life { host, turn }), 0..8),
    ) -> Window {
        let (io_requests, io_usage) = io.into_iter().unzip();
        let mut window = Window { from_ns, to_ns, call_sums, call_seconds, thread_sums, io_usage, life, watched, ..Window::default() };
        for (at, &class) in CallClass::ALL.iter().enumerate() {
            let meaning = Meaning {
                is_launch: at % 2 == 0,
                is_async: at % 3 == 0,
                is_followed: at % 5 == 0,
                graph_step: GraphStep::ALL.get(at % 4).copied(),
                ..class.into()
            };
            let layer = Layer::ALL[at % Layer::ALL.len()];
            window.ops.insert(OpId(at as u32), Op { name: "f".to_owned(), layer, meaning });
        }
        for (at, &kind) in TargetKind::ALL.iter().enumerate() {
            let target = WaitTarget { process: ProcessId(1), kind, name: "x".into() };
            window.targets.insert(TargetId(at as u32 % 7), target);
        }
        for id in 1..5 {
            let process = Process { pid: id / 2, parent_pid: id % 3, comm: "p".into(), ..Process::default() };
            window.processes.insert(ProcessId(id), process);
            window.threads.insert(ThreadId(id), Thread { process: ProcessId(id % 3 + 1), tid: id, comm: "t".into() });
        }
        feed(&mut window);
        window.stretches = Covered { rows: stretches, spans: spans.clone() };
        window.kernel_work = Covered { rows: kernel_work, spans: spans.clone() };
        window.io_requests = Covered { rows: io_requests, spans: spans.clone() };
        window.calls = Covered { rows: calls, spans: spans.clone() };
        window.memory_calls = Covered { rows: memory_calls, spans };
        window
    }
}

/// How many threads the windows of a test had, to be sure that there is something to ask about.
static THREADS: AtomicUsize = AtomicUsize::new(0);

fn check(explanation: &Explanation) -> Result<(), TestCaseError> {
    THREADS.fetch_add(explanation.threads.len(), Ordering::Relaxed);
    for thread in &explanation.threads {
        let sum: u128 = thread.parts.iter().map(|part| u128::from(part.ns)).sum();
        prop_assert_eq!(sum, u128::from(thread.wall_ns));
    }
    for finding in &explanation.findings {
        prop_assert!((0.0..=1.0).contains(&finding.confidence), "{:?}", finding);
        prop_assert!((0.0..=1.0).contains(&finding.impact.share), "{:?}", finding);
        prop_assert!(finding.chain.edges().count() > 0 && !finding.fix.is_empty());
        prop_assert!(!finding.title.is_empty(), "{:?}", finding);
    }
    let text = serde_json::to_string(explanation).unwrap();
    prop_assert_eq!(&serde_json::from_str::<Explanation>(&text).unwrap(), explanation);
    Ok(())
}

#[test]
fn any_window_is_explained_and_its_explanation_can_be_read_back() {
    let config = ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    runner.run(&window(), |window| check(&explain(&window))).unwrap();
    assert!(THREADS.load(Ordering::Relaxed) > 1_000);
}
