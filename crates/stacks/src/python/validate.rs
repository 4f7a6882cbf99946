//! The proof that an interpreter's layout fits the live process, before anything that is walked with it is believed.

use gpuwhy_model::PythonEnd;

use super::code::CodeObject;
use super::interpreter::Interpreter;
use super::refusal::Refusal;
use super::walk::{ThreadState, thread_states, walk};
use crate::memory::Memory;

/// The process runs meanwhile, so that a look may come at a bad moment.
const ATTEMPTS: usize = 5;

impl Interpreter {
    /// Walks from the interpreter's state to its threads and their frames and checks what it finds on the way: the id of
    /// a thread has to be the address of a thread's own data, code objects have to be code objects, and their names,
    /// files and line tables strings and bytes. One thread with frames that are all as they have to be is enough, since
    /// others may be starting or ending.
    pub fn validate(&self, memory: &impl Memory) -> Result<(), Refusal> {
        let mut refusal = Refusal::NotReady("it was not looked at".to_owned());
        for _ in 0..ATTEMPTS {
            match self.look(memory) {
                Ok(()) => return Ok(()),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }

    fn look(&self, memory: &impl Memory) -> Result<(), Refusal> {
        let states = thread_states(memory, self).map_err(|end| match end {
            PythonEnd::Broken => Refusal::Implausible("the list of threads does not end".to_owned()),
            _ => Refusal::Implausible("the list of threads cannot be read".to_owned()),
        })?;
        let mut refusal = Refusal::NotReady("no thread runs Python code yet".to_owned());
        for state in states.iter().filter(|state| state.thread_id != 0) {
            match self.look_at_thread(memory, *state) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(why) => refusal = Refusal::Implausible(why),
            }
        }
        Err(refusal)
    }

    /// Whether the thread has frames and all are in order.
    fn look_at_thread(&self, memory: &impl Memory, state: ThreadState) -> Result<bool, String> {
        // The first word of a thread's own data holds its address (the System V ABI for x86-64 wants it at %fs:0).
        if memory.read_u64(state.thread_id) != Some(state.thread_id) {
            return Err(format!("{:#x} is not the id of a thread", state.thread_id));
        }
        let walk = walk(memory, self, state.thread_id);
        match walk.end {
            PythonEnd::Complete | PythonEnd::TooDeep => {}
            PythonEnd::Broken => return Err("a frame runs something that is no code object".to_owned()),
            _ => return Err("a frame cannot be read".to_owned()),
        }
        for frame in &walk.frames {
            let code = CodeObject::read(memory, self, frame.code).map_err(|error| format!("{error:#}"))?;
            if code.fingerprint != frame.fingerprint {
                return Err("a code object changed".to_owned());
            }
        }
        Ok(!walk.frames.is_empty())
    }
}
