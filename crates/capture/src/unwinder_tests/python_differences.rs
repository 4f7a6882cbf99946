//! Memory of Python that is torn, changed or made up: the kernel side finds what its specification finds, but for what
//! `python_limits.rs` lists, and nothing that is not there.

use std::cell::Cell;

use gpuwhy_model::PythonEnd;
use gpuwhy_stacks::memory::Memory;
use gpuwhy_stacks::python::{CodeHead, CurrentFrame, LAYOUTS};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

use super::python::{BASE, CODE_TYPE, Found, Frame, Process, Shape, THREAD_ID, Thread};
use crate::wire::RawPythonFrame;

const CASES: u32 = 20_000;

/// A change to memory.
#[derive(Clone, Debug)]
enum Change {
    /// A field that a walk reads, and what it shall hold.
    Field(Index, Value),
    /// Any word of any object.
    Word(Index, u64, Value),
    /// So many bytes at a place in an object cannot be read.
    Hole(Index, u64, u64),
}

#[derive(Clone, Debug)]
enum Value {
    Object(Index),
    /// The object that the changed word is in.
    Itself,
    Number(u64),
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => any::<Index>().prop_map(Value::Object),
        2 => Just(Value::Itself),
        2 => Just(Value::Number(0)),
        1 => Just(Value::Number(CODE_TYPE)),
        1 => Just(Value::Number(THREAD_ID)),
        1 => any::<u64>().prop_map(Value::Number),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (any::<Index>(), value()).prop_map(|(field, value)| Change::Field(field, value)),
        2 => (any::<Index>(), 0..32u64, value()).prop_map(|(object, word, value)| Change::Word(object, word, value)),
        1 => (any::<Index>(), 0..256u64, 1..64u64).prop_map(|(object, from, bytes)| Change::Hole(object, from, bytes)),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let frame = (0..8u64, any::<bool>()).prop_map(|(function, is_entry)| Frame { function, is_entry });
    let thread = (any::<bool>(), prop::collection::vec(frame, 0..12))
        .prop_map(|(is_walked, frames)| Thread { is_walked, frames });
    prop::collection::vec(prop::collection::vec(thread, 0..4), 1..4)
}

fn process() -> impl Strategy<Value = Process> {
    let layout = prop::sample::select(LAYOUTS);
    (layout, shape(), prop::collection::vec(change(), 0..5)).prop_map(|(layout, shape, changes)| {
        let mut process = Process::new(&layout, &shape);
        for change in &changes {
            process.apply(change);
        }
        process
    })
}

impl Process {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Field(field, value) => self.change(*field.get(&self.fields), value),
            Change::Word(object, word, value) => self.change(object.get(&self.objects) + 8 * word, value),
            Change::Hole(object, from, bytes) => {
                let start = object.get(&self.objects) + from;
                self.memory.punch(start..start + bytes);
            }
        }
    }

    fn change(&mut self, address: u64, value: &Value) {
        let value = match value {
            Value::Object(object) => *object.get(&self.objects),
            Value::Itself => BASE + (address - BASE) / 256 * 256,
            Value::Number(number) => *number,
        };
        self.memory.set(address, value);
    }

    fn read(&self, object: u64, offset: u16) -> Option<u64> {
        self.memory.read_u64(object.wrapping_add(offset.into()))
    }

    /// Whether both walks see the same states: all lists end and can be read, and no interpreter has two states of the
    /// thread, or one without a frame on the C stack.
    fn has_plain_lists(&self) -> bool {
        let layout = self.interpreter.layout;
        let mut next = self.read(BASE, layout.runtime.interpreters_head);
        for _ in 0..16 {
            let Some(interpreter) = next else { return false };
            if interpreter == 0 {
                return true;
            }
            let threads = self.read(interpreter, layout.interpreter.threads_head);
            if !threads.is_some_and(|first| self.is_plain_list(first)) {
                return false;
            }
            next = self.read(interpreter, layout.interpreter.next);
        }
        next == Some(0)
    }

    fn is_plain_list(&self, mut thread: u64) -> bool {
        let layout = self.interpreter.layout;
        let mut states = 0;
        for _ in 0..16 {
            if thread == 0 {
                return states <= 1;
            }
            if !self.memory.read(thread, &mut vec![0; layout.thread_bytes().into()]) {
                return false;
            }
            let field = |offset| self.read(thread, offset).unwrap_or_default();
            if field(layout.thread.thread_id) == THREAD_ID {
                states += 1;
                if layout.thread.current != CurrentFrame::Direct && field(layout.thread.frame) == 0 {
                    return false;
                }
            }
            thread = field(layout.thread.next);
        }
        false
    }

    fn has_frame_that_points_at_itself(&self) -> bool {
        self.objects.iter().any(|object| self.read(*object, self.interpreter.layout.frame.previous) == Some(*object))
    }

    /// Whether what is said of a frame is in memory.
    fn is_there(&self, found: &Found) -> bool {
        found.frames.iter().all(|frame| {
            let head = CodeHead::read(&self.memory, &self.interpreter.layout, frame.code);
            head.is_some_and(|head| head.object_type == CODE_TYPE && head.fingerprint() == frame.fingerprint)
        })
    }
}

/// That the last frame began an evaluation loop is told by the shim behind it, which may be cut off.
fn begins_with(specified: &Found, found: &Found) -> bool {
    let Some((last, before)) = found.frames.split_last() else { return true };
    specified.frames.starts_with(before)
        && specified.frames.get(before.len()).is_some_and(|frame| {
            *last == RawPythonFrame { is_entry: last.is_entry, ..*frame } && frame.is_entry >= last.is_entry
        })
}

#[test]
fn the_kernel_side_finds_what_its_specification_finds() {
    let (same, incomplete) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) });
    let outcome = runner.run(&process(), |process| {
        let (found, specified) = (process.kernel_walk(), process.specified_walk());
        prop_assert!(process.is_there(&found), "made up: {found:?}");
        if !process.has_plain_lists() {
            return Ok(());
        }
        let may_be_shorter = found.end == PythonEnd::TooDeep
            || found.end == PythonEnd::Broken && process.has_frame_that_points_at_itself();
        if may_be_shorter {
            // Frames that are not reported count as steps, of which the specification takes fewer in an endless chain.
            let is_longer = specified.end == PythonEnd::TooDeep && begins_with(&found, &specified);
            prop_assert!(begins_with(&specified, &found) || is_longer, "{found:?}, but {specified:?}");
        } else {
            prop_assert_eq!(&found, &specified);
            same.set(same.get() + 1);
        }
        incomplete.set(incomplete.get() + u32::from(found.end != PythonEnd::Complete));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(same.get() > CASES / 3, "only {} walks could be compared", same.get());
    assert!(incomplete.get() > CASES / 20, "only {} walks met anything hostile", incomplete.get());
}
