//! Objects of Python as they lie in the memory of a process, and both walks over them: the kernel side's and the one that
//! specifies it.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::PythonEnd;
use gpuwhy_stacks::python::{self, CurrentFrame, Entry, Instruction, Interpreter, LAYOUTS, Layout, Version};

use super::fake::Fake;
use super::{Python, RawStack, Start, World};
use crate::wire::RawPythonFrame;

/// What the agent tells the kernel side of a layout.
#[path = "../../../agent/src/stacks/python.rs"]
mod told;

/// Where the objects lie, the first of which is the runtime.
pub const BASE: u64 = 0x5000_0000_0000;
pub const CODE_TYPE: u64 = 0x1111_1111_1110;
/// The thread that is walked.
pub const THREAD_ID: u64 = 0x7f00_0000_0700;

/// A process: interpreters from the newest on.
pub type Shape = Vec<Vec<Thread>>;

#[derive(Clone, Debug)]
pub struct Thread {
    pub is_walked: bool,
    /// From the innermost on.
    pub frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Which function it runs; 0 for what is put below an `__init__`.
    pub function: u64,
    pub is_entry: bool,
}

#[derive(Debug)]
pub struct Process {
    pub memory: Fake,
    pub interpreter: Interpreter,
    /// Where objects start.
    pub objects: Vec<u64>,
    /// Where the pointers and numbers are that a walk reads.
    pub fields: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub frames: Vec<RawPythonFrame>,
    pub end: PythonEnd,
}

impl Process {
    pub fn new(layout: &(u8, Layout), shape: &Shape) -> Self {
        let mut builder = Builder::new(layout.1);
        let interpreters: Vec<u64> = shape.iter().map(|threads| builder.interpreter(threads)).collect();
        builder.link(&interpreters, layout.1.interpreter.next);
        let first = interpreters.first().copied().unwrap_or_default();
        builder.set(BASE, layout.1.runtime.interpreters_head, first);
        let mut memory = Fake::default();
        memory.put(BASE, &builder.bytes);
        Self {
            memory,
            interpreter: interpreter(layout),
            objects: builder.objects,
            fields: builder.fields.into_iter().collect(),
        }
    }

    /// As the kernel side walks it.
    pub fn kernel_walk(&self) -> Found {
        let told = told::for_kernel(&self.interpreter);
        let mut world = World::new(&self.memory);
        world.python = Some(Python { layout: told.layout, runtime: told.runtime, code_type: told.code_type });
        let RawStack { python, python_end, .. } = world.walk(Start { thread_id: THREAD_ID, ..Start::default() });
        Found { frames: python, end: python_end }
    }

    /// As it is specified.
    pub fn specified_walk(&self) -> Found {
        let walk = python::walk(&self.memory, &self.interpreter, THREAD_ID);
        let raw = |frame: &python::RawFrame| RawPythonFrame {
            code: frame.code,
            instruction: frame.instruction,
            fingerprint: frame.fingerprint,
            is_entry: frame.is_entry,
        };
        Found { frames: walk.frames.iter().map(raw).collect(), end: walk.end }
    }
}

fn interpreter(&(minor, layout): &(u8, Layout)) -> Interpreter {
    Interpreter {
        version: Version { minor, micro: None },
        layout,
        runtime: BASE,
        code_type: CODE_TYPE,
        unicode_type: 0,
        bytes_type: 0,
        eval: vec![],
        is_tail_calling: false,
    }
}

struct Builder {
    layout: Layout,
    bytes: Vec<u8>,
    objects: Vec<u64>,
    fields: BTreeSet<u64>,
    codes: BTreeMap<u64, u64>,
}

/// No object is larger, as far as it is read.
const OBJECT_BYTES: usize = 256;

impl Builder {
    fn new(layout: Layout) -> Self {
        let bytes = vec![0; OBJECT_BYTES];
        Self { layout, bytes, objects: vec![BASE], fields: BTreeSet::new(), codes: BTreeMap::new() }
    }

    fn object(&mut self) -> u64 {
        let address = BASE + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + OBJECT_BYTES, 0);
        self.objects.push(address);
        address
    }

    fn set(&mut self, object: u64, offset: u16, value: u64) {
        let address = object + u64::from(offset);
        let start = (address - BASE) as usize;
        self.bytes[start..start + 8].copy_from_slice(&value.to_le_bytes());
        self.fields.insert(address);
    }

    fn set_byte(&mut self, object: u64, offset: u16, value: u8) {
        self.bytes[(object - BASE) as usize + usize::from(offset)] = value;
    }

    /// Lets each object point to the next.
    fn link(&mut self, objects: &[u64], offset: u16) {
        for (index, object) in objects.iter().enumerate() {
            self.set(*object, offset, objects.get(index + 1).copied().unwrap_or_default());
        }
    }

    fn interpreter(&mut self, threads: &[Thread]) -> u64 {
        let interpreter = self.object();
        let threads: Vec<u64> = threads.iter().map(|thread| self.thread(thread)).collect();
        self.link(&threads, self.layout.thread.next);
        let first = threads.first().copied().unwrap_or_default();
        self.set(interpreter, self.layout.interpreter.threads_head, first);
        interpreter
    }

    fn thread(&mut self, thread: &Thread) -> u64 {
        let state = self.object();
        let frames: Vec<u64> = thread.frames.iter().flat_map(|frame| self.frame(*frame)).collect();
        self.link(&frames, self.layout.frame.previous);
        let mut innermost = frames.first().copied().unwrap_or_default();
        if let CurrentFrame::ThroughCframe(offset) = self.layout.thread.current {
            let on_stack = self.object();
            self.set(on_stack, offset, innermost);
            innermost = on_stack;
        }
        self.set(state, self.layout.thread.frame, innermost);
        let id = if thread.is_walked { THREAD_ID } else { THREAD_ID + state };
        self.set(state, self.layout.thread.thread_id, id);
        state
    }

    /// The frame, and the shim that says that it is an entry.
    fn frame(&mut self, frame: Frame) -> Vec<u64> {
        let code = self.code(frame.function);
        let object = self.object();
        let layout = self.layout.frame;
        self.set(object, layout.code, code);
        let instruction = match layout.instruction_kind {
            Instruction::ByteIndex | Instruction::UnitIndex => frame.function * 2,
            Instruction::Address => code + u64::from(self.layout.code.instructions.unwrap()) + frame.function * 2,
        };
        self.set(object, layout.instruction, instruction);
        match layout.entry {
            Entry::Flag(offset) => self.set_byte(object, offset, frame.is_entry.into()),
            Entry::Shim { owner } if frame.is_entry => {
                let shim = self.object();
                self.set_byte(shim, owner, 3);
                return vec![object, shim];
            }
            Entry::Shim { .. } | Entry::EveryFrame => {}
        }
        vec![object]
    }

    fn code(&mut self, function: u64) -> u64 {
        if let Some(known) = self.codes.get(&function) {
            return *known;
        }
        let (object, code) = (self.object(), self.layout.code);
        self.codes.insert(function, object);
        self.set(object, self.layout.object_type, CODE_TYPE);
        self.set(object, code.first_line, function);
        self.set(object, code.file, object + 1);
        self.set(object, code.name, object + 1 + function.min(1));
        self.set(object, code.line_table, object + 3);
        object
    }
}

/// A thread in these frames, from the innermost on.
pub fn in_functions(functions: impl IntoIterator<Item = u64>) -> Thread {
    let frame = |function| Frame { function, is_entry: function.is_multiple_of(3) };
    Thread { is_walked: true, frames: functions.into_iter().map(frame).collect() }
}

pub fn other_thread() -> Thread {
    Thread { is_walked: false, ..in_functions([90, 91]) }
}

/// Both walks have to find the same.
#[track_caller]
pub fn same(process: &Process) -> Found {
    let found = process.kernel_walk();
    assert_eq!(found, process.specified_walk(), "{:?}", process.interpreter.version);
    found
}

#[test]
fn frames_of_every_version_are_found() {
    for layout in LAYOUTS {
        let found = same(&Process::new(layout, &vec![vec![other_thread(), in_functions(1..20), other_thread()]]));
        assert_eq!(found.end, PythonEnd::Complete);
        assert_eq!(found.frames.len(), 19);
        let offsets = found.frames.iter().map(|frame| i64::from(frame.instruction));
        assert!(offsets.eq((1..20).map(|function| function * 2)), "{:?}", found.frames);
        let entries: Vec<bool> = found.frames.iter().map(|frame| frame.is_entry).collect();
        let is_entry = |function: u64| layout.0 < 11 || function.is_multiple_of(3);
        assert_eq!(entries, (1..20).map(is_entry).collect::<Vec<_>>());
    }
}

#[test]
fn the_newer_interpreters_frames_are_the_inner_ones() {
    for layout in LAYOUTS {
        let shape = vec![vec![in_functions(1..4)], vec![other_thread()], vec![other_thread(), in_functions(4..9)]];
        let found = same(&Process::new(layout, &shape));
        assert_eq!((found.frames.len(), found.end), (8, PythonEnd::Complete));
    }
}

#[test]
fn a_thread_without_a_state_has_no_frames() {
    for layout in LAYOUTS {
        for shape in [vec![], vec![vec![]], vec![vec![other_thread()], vec![other_thread(), other_thread()]]] {
            assert_eq!(same(&Process::new(layout, &shape)), Found { frames: vec![], end: PythonEnd::NoThread });
        }
    }
}

#[test]
fn a_state_without_frames_is_complete() {
    for layout in LAYOUTS {
        let found = same(&Process::new(layout, &vec![vec![in_functions([])]]));
        assert_eq!(found, Found { frames: vec![], end: PythonEnd::Complete });
    }
}

#[test]
fn what_is_put_below_an_init_is_no_frame() {
    for layout in LAYOUTS {
        let frame = |function| Frame { function, is_entry: false };
        let frames = [1, 0, 2, 0, 0, 3].map(frame).to_vec();
        let found = same(&Process::new(layout, &vec![vec![Thread { is_walked: true, frames }]]));
        assert_eq!((found.frames.len(), found.end), (3, PythonEnd::Complete));
    }
}
