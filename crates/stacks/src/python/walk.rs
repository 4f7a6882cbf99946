//! The walk over a thread's Python frames: the specification of what the kernel side does, and the same for tests.

use gpuwhy_model::PythonEnd;

use super::code::CodeHead;
use super::interpreter::Interpreter;
use super::layout::{CurrentFrame, Entry, FIRST_SHIM_OWNER, Instruction};
use super::objects::at;
use crate::memory::Memory;

pub const MOST_FRAMES: usize = 128;
pub const MOST_INTERPRETERS: usize = 64;
pub const MOST_THREADS: usize = 8192;

/// Of frames that are not reported. There is at most one shim for each frame and each cleanup of an `__init__`.
const MOST_STEPS: usize = 3 * MOST_FRAMES;

/// A frame as the walk finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawFrame {
    /// The address of the code object.
    pub code: u64,
    /// Since 3.11: the frame's instruction address minus that of the code object's first instruction (the code object's
    /// address plus [`super::CodeLayout::instructions`]), in bytes. Before: `f_lasti` as it is. Negative for a frame
    /// that has not begun.
    pub instruction: i32,
    /// See [`super::fingerprint`].
    pub fingerprint: u32,
    /// Whether C code called it: the evaluation loop below it runs this frame and those inside of it up to the next
    /// entry.
    pub is_entry: bool,
}

/// From the innermost frame outwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    pub frames: Vec<RawFrame>,
    /// What was found up to there is right however it ended.
    pub end: PythonEnd,
}

/// Walks the frames of the thread whose `pthread_self()`, which is its fs base, is `thread_id`.
///
/// A thread that runs code of several interpreters has a state in each. The newest interpreter is the innermost; states
/// without frames add nothing.
pub fn walk(memory: &impl Memory, interpreter: &Interpreter, thread_id: u64) -> Walk {
    let mut walk = Walk { frames: Vec::new(), end: PythonEnd::NoThread };
    let states = match thread_states(memory, interpreter) {
        Ok(states) => states,
        Err(end) => return Walk { end, ..walk },
    };
    for state in states.iter().filter(|state| state.thread_id == thread_id) {
        walk.end = walk_state(memory, interpreter, state.address, &mut walk.frames);
        if walk.end != PythonEnd::Complete {
            break;
        }
    }
    walk
}

/// A thread as one interpreter sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadState {
    pub address: u64,
    pub thread_id: u64,
}

/// The states of all threads in all interpreters, the newest first. A list that does not end is broken.
pub(super) fn thread_states(memory: &impl Memory, interpreter: &Interpreter) -> Result<Vec<ThreadState>, PythonEnd> {
    let layout = &interpreter.layout;
    let read = |address, offset| memory.read_u64(at(address, offset)).ok_or(PythonEnd::Unreadable);
    let mut states = Vec::new();
    let mut interpreters = 0;
    let mut state_of = read(interpreter.runtime, layout.runtime.interpreters_head)?;
    while state_of != 0 {
        interpreters += 1;
        let mut thread = read(state_of, layout.interpreter.threads_head)?;
        while thread != 0 {
            states.push(ThreadState { address: thread, thread_id: read(thread, layout.thread.thread_id)? });
            thread = read(thread, layout.thread.next)?;
            if states.len() > MOST_THREADS {
                return Err(PythonEnd::Broken);
            }
        }
        state_of = read(state_of, layout.interpreter.next)?;
        if interpreters > MOST_INTERPRETERS {
            return Err(PythonEnd::Broken);
        }
    }
    Ok(states)
}

fn walk_state(memory: &impl Memory, interpreter: &Interpreter, state: u64, frames: &mut Vec<RawFrame>) -> PythonEnd {
    let Some(mut address) = innermost_frame(memory, interpreter, state) else { return PythonEnd::Unreadable };
    for _ in 0..MOST_STEPS {
        if address == 0 {
            return PythonEnd::Complete;
        }
        let Some(frame) = Frame::read(memory, interpreter, address) else { return PythonEnd::Unreadable };
        if let Err(end) = frame.report(memory, interpreter, frames) {
            return end;
        }
        address = frame.previous;
    }
    PythonEnd::TooDeep
}

fn innermost_frame(memory: &impl Memory, interpreter: &Interpreter, state: u64) -> Option<u64> {
    let thread = &interpreter.layout.thread;
    let pointer = memory.read_u64(at(state, thread.frame))?;
    match thread.current {
        CurrentFrame::Direct => Some(pointer),
        CurrentFrame::ThroughCframe(offset) => memory.read_u64(at(pointer, offset)),
    }
}

/// The head of a frame, from one read.
struct Frame {
    code: u64,
    previous: u64,
    instruction: u64,
    is_shim: bool,
    is_entry: bool,
}

impl Frame {
    fn read(memory: &impl Memory, interpreter: &Interpreter, address: u64) -> Option<Self> {
        let layout = &interpreter.layout.frame;
        let mut bytes = vec![0; interpreter.layout.frame_bytes().into()];
        if !memory.read(address, &mut bytes) {
            return None;
        }
        let byte = |offset: u16| bytes.get(usize::from(offset)).copied();
        let word = |offset: u16| {
            let bytes = bytes.get(usize::from(offset)..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let (is_shim, is_entry) = match layout.entry {
            Entry::EveryFrame => (false, true),
            Entry::Flag(offset) => (false, byte(offset)? != 0),
            Entry::Shim { owner } => (byte(owner)? >= FIRST_SHIM_OWNER, false),
        };
        Some(Self {
            code: word(layout.code)? & !layout.tags.mask(),
            previous: word(layout.previous)?,
            instruction: word(layout.instruction)?,
            is_shim,
            is_entry,
        })
    }

    fn report(
        &self,
        memory: &impl Memory,
        interpreter: &Interpreter,
        frames: &mut Vec<RawFrame>,
    ) -> Result<(), PythonEnd> {
        if self.is_shim {
            // The frame inside of it is the one that C code called.
            if let Some(last) = frames.last_mut() {
                last.is_entry = true;
            }
            return Ok(());
        }
        if frames.len() >= MOST_FRAMES {
            return Err(PythonEnd::TooDeep);
        }
        let head = CodeHead::read(memory, &interpreter.layout, self.code).ok_or(PythonEnd::Unreadable)?;
        if head.object_type != interpreter.code_type {
            return Err(PythonEnd::Broken);
        }
        if !head.is_init_cleanup() {
            let instruction = self.instruction(interpreter);
            let fingerprint = head.fingerprint();
            frames.push(RawFrame { code: self.code, instruction, fingerprint, is_entry: self.is_entry });
        }
        Ok(())
    }

    fn instruction(&self, interpreter: &Interpreter) -> i32 {
        let number = match interpreter.layout.frame.instruction_kind {
            Instruction::ByteIndex | Instruction::UnitIndex => self.instruction,
            Instruction::Address => {
                let first = at(self.code, interpreter.layout.code.instructions.unwrap_or_default());
                self.instruction.wrapping_sub(first)
            }
        };
        // The kernel side keeps 32 bits as well; what does not fit is no offset in a table.
        (number as u32).cast_signed()
    }
}
