//! Where the kernel side's walk over Python's frames may end differently from the one that specifies it, since it sees
//! each state once, in passing, and may take only so many steps:
//!
//! - it looks at no more than 16 interpreters, and takes no more than 640 steps over threads and frames;
//! - it counts shims as frames, of which it reports 128;
//! - in a chain without end it passes more frames that are not reported than its specification does;
//! - of several states of a thread in one interpreter it takes the first, and looks at no thread behind it;
//! - it reports what it found before it came upon a list that cannot be read;
//! - it recognises a frame that points at itself;
//! - it takes a thread without a frame on the C stack for one that runs nothing.

use gpuwhy_model::PythonEnd;
use gpuwhy_stacks::memory::Memory;
use gpuwhy_stacks::python::{CurrentFrame, LAYOUTS, Layout};

use super::python::{BASE, Frame, Process, Shape, Thread, in_functions, other_thread, same};
use super::{MAX_PYTHON_STEPS, types};

const MAX_PYTHON_FRAMES: usize = types::limits::MAX_PYTHON_FRAMES.0 as usize;
const NEWEST: &(u8, Layout) = &LAYOUTS[LAYOUTS.len() - 1];

fn without_entries(functions: u64) -> Thread {
    let frames = (1..=functions).map(|function| Frame { function, is_entry: false }).collect();
    Thread { is_walked: true, frames }
}

#[test]
fn a_stack_that_is_too_deep_is_cut() {
    for layout in LAYOUTS {
        let found = same(&Process::new(layout, &vec![vec![without_entries(128)]]));
        assert_eq!((found.frames.len(), found.end), (MAX_PYTHON_FRAMES, PythonEnd::Complete));
        let found = same(&Process::new(layout, &vec![vec![without_entries(200)]]));
        assert_eq!((found.frames.len(), found.end), (MAX_PYTHON_FRAMES, PythonEnd::TooDeep));
    }
}

#[test]
fn shims_take_the_place_of_frames() {
    let process = Process::new(NEWEST, &vec![vec![in_functions(1..120)]]);
    let (found, specified) = (process.kernel_walk(), process.specified_walk());
    assert_eq!((specified.frames.len(), specified.end), (119, PythonEnd::Complete));
    assert_eq!((found.frames.len(), found.end), (96, PythonEnd::TooDeep));
    assert_eq!(found.frames, specified.frames[..96]);
}

#[test]
fn frames_that_lead_in_a_circle_are_too_deep() {
    for layout in LAYOUTS {
        let mut process = Process::new(layout, &vec![vec![without_entries(5)]]);
        let frames = frames_of(&process, layout);
        process.memory.set(frames[4] + u64::from(layout.1.frame.previous), frames[1]);
        assert_eq!(same(&process).end, PythonEnd::TooDeep);
    }
}

#[test]
fn a_frame_that_points_at_itself_is_broken() {
    for layout in LAYOUTS {
        let mut process = Process::new(layout, &vec![vec![without_entries(5)]]);
        let frames = frames_of(&process, layout);
        process.memory.set(frames[2] + u64::from(layout.1.frame.previous), frames[2]);
        let found = process.kernel_walk();
        assert_eq!((found.frames.len(), found.end), (2, PythonEnd::Broken));
    }
}

#[test]
fn circles_of_frames_that_are_not_reported_are_too_deep() {
    let frames = vec![Frame { function: 0, is_entry: false }; 3];
    for layout in LAYOUTS {
        let mut process = Process::new(layout, &vec![vec![Thread { is_walked: true, frames: frames.clone() }]]);
        let frames = frames_of(&process, layout);
        process.memory.set(frames[2] + u64::from(layout.1.frame.previous), frames[0]);
        let found = same(&process);
        assert_eq!((found.frames.len(), found.end), (0, PythonEnd::TooDeep));
    }
}

#[test]
fn a_frame_that_cannot_be_read_ends_the_walk() {
    for layout in LAYOUTS {
        let mut process = Process::new(layout, &vec![vec![without_entries(5)]]);
        let frame = frames_of(&process, layout)[3];
        process.memory.punch(frame..frame + 8);
        let found = same(&process);
        assert_eq!((found.frames.len(), found.end), (3, PythonEnd::Unreadable));
    }
}

#[test]
fn a_code_object_that_cannot_be_read_or_is_none_ends_the_walk() {
    for layout in LAYOUTS {
        for (code, end) in [(0, PythonEnd::Unreadable), (8, PythonEnd::Unreadable), (BASE, PythonEnd::Broken)] {
            let mut process = Process::new(layout, &vec![vec![without_entries(5)]]);
            let frame = frames_of(&process, layout)[3];
            process.memory.set(frame + u64::from(layout.1.frame.code), code);
            let found = same(&process);
            assert_eq!((found.frames.len(), found.end), (3, end));
        }
    }
}

#[test]
fn interpreters_that_are_not_looked_at_are_no_reason_to_say_that_there_is_no_thread() {
    let mut shape: Shape = (0..16).map(|_| vec![other_thread()]).collect();
    assert_eq!(same(&Process::new(NEWEST, &shape)).end, PythonEnd::NoThread);
    shape.push(vec![in_functions([1])]);
    let process = Process::new(NEWEST, &shape);
    assert_eq!(process.specified_walk().end, PythonEnd::Complete);
    assert_eq!(process.kernel_walk().end, PythonEnd::TooDeep);
}

#[test]
fn a_walk_that_runs_out_of_steps_is_not_complete() {
    for others in [MAX_PYTHON_STEPS as usize - 4, MAX_PYTHON_STEPS as usize] {
        let thread = Thread { is_walked: false, frames: vec![] };
        let threads = [vec![thread; others], vec![without_entries(20)]].concat();
        let process = Process::new(NEWEST, &vec![threads]);
        assert_eq!(process.specified_walk().end, PythonEnd::Complete);
        let found = process.kernel_walk();
        assert!(found.frames.len() < 20);
        assert_eq!(found.end, PythonEnd::TooDeep, "behind {others} threads");
    }
}

#[test]
fn threads_that_lead_in_a_circle_end_the_walk() {
    let mut process = Process::new(NEWEST, &vec![vec![other_thread(), other_thread()]]);
    let first = process.objects[2];
    process.memory.set(first + u64::from(NEWEST.1.thread.next), first);
    assert_eq!(process.kernel_walk().end, PythonEnd::TooDeep);
}

#[test]
fn what_was_found_before_a_list_broke_off_is_kept() {
    let mut process = Process::new(NEWEST, &vec![vec![without_entries(5)], vec![other_thread()]]);
    let newest = process.objects[1];
    process.memory.set(newest + u64::from(NEWEST.1.interpreter.next), 8);
    let found = process.kernel_walk();
    assert_eq!((found.frames.len(), found.end), (5, PythonEnd::Unreadable));
    assert_eq!(process.specified_walk().frames, []);
}

#[test]
fn the_first_state_of_a_thread_in_an_interpreter_counts() {
    let process = Process::new(NEWEST, &vec![vec![without_entries(5), without_entries(7)]]);
    assert_eq!(process.kernel_walk().frames.len(), 5);
    assert_eq!(process.specified_walk().frames.len(), 12);
}

#[test]
fn a_thread_without_a_frame_on_the_c_stack_runs_nothing() {
    let mut process = Process::new(NEWEST, &vec![vec![without_entries(5)]]);
    let state = process.objects[2];
    process.memory.set(state + u64::from(NEWEST.1.thread.frame), 0);
    assert_eq!(process.kernel_walk().end, PythonEnd::Complete);
    assert_eq!(process.specified_walk().end, PythonEnd::Unreadable);
}

/// The frames of the only thread, by following them.
fn frames_of(process: &Process, layout: &(u8, Layout)) -> Vec<u64> {
    let read = |object: u64, offset: u16| process.memory.read_u64(object + u64::from(offset)).unwrap();
    let mut frame = read(process.objects[2], layout.1.thread.frame);
    if let CurrentFrame::ThroughCframe(offset) = layout.1.thread.current {
        frame = read(frame, offset);
    }
    let mut frames = vec![];
    while frame != 0 {
        frames.push(frame);
        frame = read(frame, layout.1.frame.previous);
    }
    frames
}
