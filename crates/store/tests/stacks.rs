//! Stacks come back frame by frame, and say which lines of a program make calls and wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{
    Call, Frame, FrameKind, PythonEnd, Stack, StackId, StackMoment, StackSample, StackWalks, Stretch, WaitReason,
    WalkEnd,
};
use gpuwhy_store::{Filter, Limits, StacksOf, Trace, Truncation, Value, Writer};
use gpuwhy_window::Scope;
use support::*;

const TORCH: &str = "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py";

fn python(function: &str, file: &str, line: u32) -> Frame {
    let address = u64::from(line) * 2;
    Frame {
        kind: FrameKind::Python,
        function: function.into(),
        file: Some(file.into()),
        line: Some(line),
        address,
        ..Frame::default()
    }
}

fn native(function: &str, module: &str) -> Frame {
    Frame { function: function.into(), module: Some(module.into()), address: 0x1f40, ..Frame::default() }
}

fn complete(frames: &[Frame]) -> Stack {
    Stack { frames: frames.to_vec(), end: WalkEnd::Complete, python_end: PythonEnd::Complete }
}

/// A launch from a line of `train.py`, through torch.
fn training(line: u32) -> Stack {
    let launch = native("cuLaunchKernel", "/usr/lib/libcuda.so.1");
    complete(&[launch, python("Module.forward", TORCH, 1501), python("train", "/home/me/train.py", line)])
}

fn store(writer: &mut Writer, stack: &Stack) -> StackId {
    let id = writer.reserve_stack().unwrap();
    writer.stack(id, stack).unwrap();
    id
}

#[test]
fn a_stack_comes_back_with_every_frame_in_its_order() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let inlined = Frame { is_inlined: true, address: u64::MAX, line: Some(7), ..native("add<int>", "/srv/server") };
    let unknown = Frame { kind: FrameKind::Jit, ..Frame::default() };
    let frames = [inlined, native("main", "/srv/server"), unknown];
    let cut_short = Stack { frames: frames.to_vec(), end: WalkEnd::NoFramePointer, python_end: PythonEnd::NotPython };
    let (first, second) = (store(&mut writer, &cut_short), store(&mut writer, &training(142)));
    assert_eq!((first, second), (StackId(1), StackId(2)));
    writer.finish(&end()).unwrap();
    let sql = "SELECT stack_id, position, kind, function, file, line, module, address, is_inlined FROM stack_lines
        ORDER BY stack_id, position";
    let expected = [
        "1 0 native add<int> null 7 /srv/server -1 1".to_owned(),
        "1 1 native main null null /srv/server 8000 0".to_owned(),
        "1 2 jit  null null null 0 0".to_owned(),
        "2 0 native cuLaunchKernel null null /usr/lib/libcuda.so.1 8000 0".to_owned(),
        format!("2 1 python Module.forward {TORCH} 1501 null 3002 0"),
        "2 2 python train /home/me/train.py 142 null 284 0".to_owned(),
    ];
    assert_eq!(lines(&path, sql), expected);
    let sql = "SELECT id, depth, end, python_end, site_frame_id FROM stacks ORDER BY id";
    assert_eq!(lines(&path, sql), ["1 3 no_frame_pointer not_python 1", "2 3 complete complete 6"]);
}

#[test]
fn a_frame_that_many_stacks_have_is_stored_once() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let stacks: Vec<StackId> = (0..100).map(|line| store(&mut writer, &training(line))).collect();
    assert_eq!(stacks[99], StackId(100));
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT COUNT(*) FROM frames"), 102);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM stack_lines"), 300);
}

#[test]
fn a_stack_is_cited_before_its_frames_are_known() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let [named, never_named] = [writer.reserve_stack().unwrap(), writer.reserve_stack().unwrap()];
    let call = |offset, stack| Call { stack_id: Some(stack), ..cast.call(offset) };
    writer.calls(&mut [call(1, named), call(2, never_named)]).unwrap();
    writer.commit(START_NS).unwrap();
    let sites = "SELECT function, line, calls, max_stack_id FROM call_sites ORDER BY max_stack_id";
    assert_eq!(lines(&path, sites), ["null null 2 1"]);
    writer.stack(named, &training(142)).unwrap();
    // The first names stay.
    writer.stack(named, &training(9)).unwrap();
    writer.stack(StackId(77), &training(9)).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, sites), ["train 142 1 1", "null null 1 2"]);
    assert_eq!(lines(&path, "SELECT id, depth FROM stacks"), ["1 3", "2 null"]);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM stack_frames WHERE stack_id = 77"), 0);
}

#[test]
fn a_later_session_does_not_use_a_number_again_that_was_never_named() {
    let (_directory, path) = temporary();
    let mut first = writer(&path);
    let cast = Cast::new(&mut first);
    let stack_id = Some(first.reserve_stack().unwrap());
    first.calls(&mut [Call { stack_id, ..cast.call(1) }]).unwrap();
    first.finish(&end()).unwrap();
    let mut second = writer(&path);
    assert_eq!(store(&mut second, &training(1)), StackId(2));
    second.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT function FROM call_sites"), ["null"]);
}

#[test]
fn calls_are_summed_by_the_line_that_makes_them() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let [slow, fast] = [142, 9].map(|line| Some(store(&mut writer, &training(line))));
    // The same line, at another instruction of it.
    let mut again = training(142);
    again.frames[2].address += 2;
    let again = Some(store(&mut writer, &again));
    let call = |offset, stack_id, duration_ns| Call { stack_id, duration_ns, blocked_ns: 10, ..cast.call(offset) };
    let other = Call { thread: cast.other_thread, op: cast.alloc, ..call(5, slow, 70) };
    let without = call(6, None, 1_000_000);
    let mut calls = [call(1, slow, 100), call(2, again, 300), call(3, fast, 50), call(4, slow, 200), other, without];
    writer.calls(&mut calls).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT op, tid, comm, kind, function, file, line, calls, total_ns, blocked_ns, max_ns, max_stack_id
        FROM call_sites ORDER BY total_ns DESC";
    let expected = [
        "cuLaunchKernel 100 python python train /home/me/train.py 142 3 600 30 300 3",
        "cuMemAlloc_v2 101 worker python train /home/me/train.py 142 1 70 10 70 1",
        "cuLaunchKernel 100 python python train /home/me/train.py 9 1 50 10 50 2",
    ];
    assert_eq!(lines(&path, sql), expected);
}

#[test]
fn waits_are_summed_by_the_line_that_waits_and_by_the_line_that_ends_them() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let futex = native("futex_wait", "/usr/lib/libc.so.6");
    let wait = complete(&[futex, python("get", "/usr/lib/python3.10/queue.py", 171), python("next", "data.py", 12)]);
    let stack = Some(store(&mut writer, &wait));
    let waker_stack = Some(store(&mut writer, &complete(&[python("put", "load.py", 30)])));
    let woken_by = Some(cast.other_thread);
    let stretch = |offset, waker_stack| Stretch { stack, waker_stack, woken_by, ..cast.stretch(offset) };
    let sleep = Stretch { reason: Some(WaitReason::Sleep), blocked_ns: 7, ..stretch(3, None) };
    writer.stretches(&[stretch(1, waker_stack), stretch(2, waker_stack), sleep, cast.stretch(4)]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT blocked_on, tid, function, file, line, waits, total_ns, blocked_ns, runqueue_ns, max_stack_id
        FROM wait_sites ORDER BY total_ns DESC";
    let expected = ["futex 100 next data.py 12 2 128000 120000 8000 1", "sleep 100 next data.py 12 1 4007 7 4000 1"];
    assert_eq!(lines(&path, sql), expected);
    let sql = "SELECT blocked_on, tid, woken_by_tid, woken_by_comm, function, file, line, waits, total_ns, max_stack_id
        FROM waker_sites";
    assert_eq!(lines(&path, sql), ["futex 100 101 worker put load.py 30 2 120000 2"]);
    let sql = "SELECT stack_id, waker_stack_id FROM sched_events ORDER BY id";
    assert_eq!(lines(&path, sql), ["1 2", "1 2", "1 null", "null null"]);
}

#[test]
fn ways_that_walks_ended_add_up() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let walks = StackWalks {
        bucket_ns: START_NS,
        moment: StackMoment::Wait,
        end: WalkEnd::Complete,
        python_end: PythonEnd::NoThread,
        count: 5,
        ns: 100,
    };
    let unknown = StackWalks { moment: StackMoment::Waker, end: WalkEnd::NoProcess, ..walks };
    writer.stack_walks(&[walks, unknown]).unwrap();
    writer.commit(START_NS).unwrap();
    let later = StackWalks { bucket_ns: START_NS + 1_000_000_000, ..walks };
    writer.stack_walks(&[walks, unknown, later]).unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT bucket_ns - 1790000000000000000, moment, end, python_end, count, walking_ns, session_id
        FROM stack_stats ORDER BY bucket_ns, moment";
    let expected = [
        "0 wait complete no_thread 10 200 1",
        "0 waker no_process no_thread 10 200 1",
        "1000000000 wait complete no_thread 5 100 1",
    ];
    assert_eq!(lines(&path, sql), expected);
    let window = Trace::open(&path).unwrap().window(&Scope::default()).unwrap();
    let summed = [StackWalks { count: 15, ns: 300, ..walks }, StackWalks { count: 10, ns: 200, ..unknown }];
    assert_eq!(window.stack_walks, summed);
}

#[test]
fn a_window_has_the_stacks_that_its_records_cite() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let [called, waited, woke, elsewhere] = [1, 2, 3, 4].map(|line| Some(store(&mut writer, &training(line))));
    let unnamed = Some(writer.reserve_stack().unwrap());
    let late = Call { stack_id: elsewhere, ..cast.call(5_000) };
    let calls = [Call { stack_id: called, ..cast.call(1) }, Call { stack_id: unnamed, ..cast.call(2) }, late];
    writer.calls(&mut calls.clone()).unwrap();
    writer.stretches(&[Stretch { stack: waited, waker_stack: woke, ..cast.stretch(1) }]).unwrap();
    writer.finish(&end()).unwrap();
    let scope = Scope { to_ns: Some(START_NS + 1_000), ..Scope::default() };
    let window = Trace::open(&path).unwrap().window(&scope).unwrap();
    assert_eq!(window.calls.rows, calls[..2]);
    assert_eq!((window.stretches.rows[0].stack, window.stretches.rows[0].waker_stack), (waited, woke));
    assert_eq!(window.stacks.keys().copied().collect::<Vec<_>>(), [1, 2, 3].map(StackId));
    let loaded = &window.stacks[&StackId(2)];
    let frames: Vec<Frame> = loaded.frames.iter().map(|frame| (**frame).clone()).collect();
    assert_eq!(Stack { frames, end: loaded.end, python_end: loaded.python_end }, training(2));
    assert_eq!(loaded.site_frame(), Some(&training(2).frames[2]));
    assert!(std::sync::Arc::ptr_eq(&loaded.frames[0], &window.stacks[&StackId(1)].frames[0]));
}

#[test]
fn hostile_names_come_back_as_they_were_and_endless_ones_are_cut() {
    let hostile = "'; DROP TABLE frames; --\n\"\u{1b}[31m<script>\u{0};\u{202e}\u{1F980}";
    let endless = "\u{1F980}".repeat(1_000);
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let frame = |text: &str| Frame { module: Some(text.into()), ..python(text, text, u32::MAX) };
    store(&mut writer, &complete(&[frame(hostile)]));
    store(&mut writer, &complete(&vec![frame(&endless); 1_500]));
    writer.finish(&end()).unwrap();
    let text = Value::Text(hostile.into());
    let sql = "SELECT function, file, module FROM stack_lines WHERE stack_id = 1";
    assert_eq!(rows(&path, sql), [vec![text.clone(), text.clone(), text]]);
    assert_eq!(lines(&path, "SELECT depth, end FROM stacks WHERE id = 2"), ["1024 too_deep"]);
    let sql =
        "SELECT DISTINCT LENGTH(function), LENGTH(file), LENGTH(module), line FROM stack_lines WHERE stack_id = 2";
    assert_eq!(lines(&path, sql), ["256 256 256 4294967295"]);
}

#[test]
fn times_of_stacks_are_those_of_the_calls_or_waits_that_match() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let [one, two] = [1, 2].map(|line| Some(store(&mut writer, &training(line))));
    let unnamed = Some(writer.reserve_stack().unwrap());
    let call = |offset, op, stack_id| Call { op, stack_id, ..cast.call(offset) };
    let (launch, alloc) = (cast.launch, cast.alloc);
    let calls = [call(1, launch, one), call(2, launch, one), call(3, launch, two), call(4, alloc, unnamed)];
    writer.calls(&mut calls.clone()).unwrap();
    writer.stretches(&[Stretch { stack: two, ..cast.stretch(1) }, cast.stretch(2)]).unwrap();
    writer.finish(&end()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert!(trace.has_stacks().unwrap());
    let lines = |of, filter: Filter| {
        let times = trace.stack_times(of, &filter, &Limits::default()).unwrap().rows.into_iter();
        let line = |frame: &Frame| frame.line.unwrap();
        times.map(|time| (time.stack.map(|stack| stack.site_frame().map(line).unwrap()), time.ns)).collect::<Vec<_>>()
    };
    let op = |name: &str| Filter { op: Some(name.into()), ..Filter::default() };
    assert_eq!(lines(StacksOf::Calls, Filter::default()), [(Some(1), 10_000), (Some(2), 5_000), (None, 5_000)]);
    assert_eq!(lines(StacksOf::Calls, op("cuMemAlloc")), [(None, 5_000)]);
    assert_eq!(lines(StacksOf::Calls, op("nothing")), []);
    let since = Filter { since_ns: Some(START_NS + 2), ..op("cuLaunchKernel") };
    assert_eq!(lines(StacksOf::Calls, since), [(Some(1), 5_000), (Some(2), 5_000)]);
    assert_eq!(lines(StacksOf::Waits, Filter::default()), [(Some(2), 60_000)]);
    assert_eq!(lines(StacksOf::Waits, Filter { tid: Some(101), ..Filter::default() }), []);
    let few = trace.stack_times(StacksOf::Calls, &Filter::default(), &Limits { rows: 1, ..Limits::default() }).unwrap();
    assert_eq!((few.rows.len(), few.truncated), (1, Some(Truncation::Rows)));
}

#[test]
fn calls_with_stacks_are_found_without_a_look_at_the_others() {
    let (_directory, path) = temporary();
    writer(&path).finish(&end()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let steps = |sql: &str| {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        steps.map(Result::unwrap).filter(|step| step.contains(" calls ")).collect::<Vec<_>>()
    };
    let all = "SCAN calls USING INDEX calls_stacks";
    assert_eq!(steps("SELECT * FROM call_sites ORDER BY total_ns DESC"), [all]);
    let sums = "SELECT stack_id, sum(duration_ns) FROM cuda_events WHERE stack_id IS NOT NULL";
    assert_eq!(steps(&format!("{sums} GROUP BY 1 ORDER BY 2 DESC, 1")), [all]);
    let since = ["SEARCH calls USING INDEX calls_stacks (start_ns>?)"];
    assert_eq!(steps(&format!("{sums} AND timestamp_ns > 5 GROUP BY 1")), since);
}

#[test]
fn where_running_threads_were_seen_adds_up_and_brings_its_stacks_along() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let id = writer.reserve_stack().unwrap();
    let frame = Frame { function: "burn".into(), module: Some("/srv/worker".into()), ..Frame::default() };
    writer.stack(id, &Stack { frames: vec![frame], end: WalkEnd::Complete, ..Stack::default() }).unwrap();
    let sample = StackSample { bucket_ns: START_NS, thread: cast.thread, stack: id, count: 3 };
    let later = StackSample { bucket_ns: START_NS + 1_000_000_000, count: 4, ..sample };
    writer.stack_samples(&[sample, sample, later]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT function, samples, max_samples FROM run_sites"), ["burn 10 6"]);
    let window = Trace::open(&path).unwrap().window(&Scope::default()).unwrap();
    assert_eq!(window.samples, [StackSample { count: 10, ..sample }]);
    assert_eq!(window.stacks[&id].site_frame().unwrap().function, "burn");
}

#[test]
fn a_launch_says_which_kernel_where_that_is_known() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.kernel(cast.process, u64::MAX, "add(float*)").unwrap();
    let [known, unknown] = [(0, u64::MAX), (1, 7)].map(|(at, handle)| Call { handle: Some(handle), ..cast.call(at) });
    writer.calls(&mut [known, unknown]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT kernel FROM cuda_events ORDER BY id"), ["add(float*)", "null"]);
}
