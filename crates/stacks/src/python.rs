//! Python's frames in the memory of a process that runs CPython 3.9 to 3.14 on x86-64.
//!
//! [`Interpreter::find`] recognises the file that holds the interpreter, [`Interpreter::validate`] proves that its layout
//! fits the live process, [`walk`] is the specification of the walk that the kernel side does, [`CodeObject`] says what
//! its numbers mean, and [`merge`] puts Python's and native frames into one order. Memory is only read: nothing of the
//! process is executed, nothing is stopped, and nothing that does not check out is guessed.

mod code;
mod file;
mod interpreter;
mod layout;
mod lines;
mod merge;
mod objects;
mod offsets;
mod parts;
mod refusal;
mod validate;
mod version;
mod walk;

pub use code::{CodeHead, CodeObject, fingerprint};
pub use file::runtime;
pub use interpreter::Interpreter;
pub use layout::{
    BytesLayout, CodeLayout, CurrentFrame, Entry, FrameLayout, Instruction, InterpreterLayout, LAYOUTS, Layout,
    LineTable, RuntimeLayout, Tags, ThreadLayout, UnicodeLayout,
};
pub use merge::{Alignment, Merged, MergedFrame, NativeFrame, NativeRole, PythonFrame, merge};
pub use refusal::Refusal;
pub use version::Version;
pub use walk::{MOST_FRAMES, MOST_INTERPRETERS, MOST_THREADS, RawFrame, Walk, walk};
