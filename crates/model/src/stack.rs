//! A stack as a person reads it: from the innermost frame outwards, Python's and native frames in one order.

use serde::Serialize;

use crate::api::words;
use crate::{StackId, ThreadId, WalksEnded};

words! {
    /// What a frame runs.
    #[derive(Default)]
    FrameKind {
        Python = "python",
        /// Code of a file.
        #[default]
        Native = "native",
        /// Code that belongs to no file.
        Jit = "jit",
        Kernel = "kernel",
    }
}

words! {
    /// How the walk over native frames ended, in the order of `enum walk_end` in `wire.h`.
    #[derive(Default)]
    WalkEnd {
        /// At the start of the thread or of the program.
        Complete = "complete",
        TooDeep = "too_deep",
        /// The stack's memory could not be read.
        Unreadable = "unreadable",
        /// An address belongs to no code that is known of the process.
        NoMapping = "no_mapping",
        /// The code says nothing about how to leave it that can be followed.
        NoRule = "no_rule",
        /// The next frame would lie below the last.
        NoProgress = "no_progress",
        /// Where frame pointers had to do, for want of a table, they led nowhere.
        NoFramePointer = "no_frame_pointer",
        /// The process is not known yet.
        NoProcess = "no_process",
        /// At the start of the thread, by frame pointers that no table vouches for: functions that keep none may be
        /// missing.
        FramePointers = "frame_pointers",
        /// Native frames were not asked for, or another walk was under way on the CPU.
        #[default]
        NotWalked = "not_walked",
    }
}

words! {
    /// How the walk over Python's frames ended, in the order of `enum python_end` in `wire.h`.
    #[derive(Default)]
    PythonEnd {
        /// The process runs no Python that is known.
        #[default]
        NotPython = "not_python",
        Complete = "complete",
        TooDeep = "too_deep",
        Unreadable = "unreadable",
        /// The thread has no Python state.
        NoThread = "no_thread",
        /// Something in the chain is not what it has to be.
        Broken = "broken",
    }
}

words! {
    /// When a stack is taken.
    StackMoment {
        /// At the return of a slow call.
        Call = "call",
        /// When a thread leaves the CPU to wait.
        Wait = "wait",
        /// When a thread ends another one's wait.
        Waker = "waker",
        /// Now and then, while the thread ran.
        Sample = "sample",
    }
}

/// How many walks ended in the same way within one bucket of time, whether their stacks were kept or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackWalks {
    pub bucket_ns: u64,
    pub moment: StackMoment,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
    pub count: u64,
    /// How long they took, together.
    pub ns: u64,
}

impl StackWalks {
    /// As answers say it.
    pub fn ended(&self) -> WalksEnded {
        let Self { moment, end, python_end, count, .. } = *self;
        WalksEnded { moment, end, python_end, count }
    }
}

/// How often a running thread was seen with a stack, in a bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSample {
    pub bucket_ns: u64,
    pub thread: ThreadId,
    pub stack: StackId,
    pub count: u64,
}

/// One frame. Names that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    pub kind: FrameKind,
    /// Demangled, or Python's qualified name.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line that is being executed.
    pub line: Option<u32>,
    /// The path of the file that holds the code, as the process sees it.
    pub module: Option<String>,
    /// The address in the module as tools print it, in memory where there is none, or Python's bytecode offset.
    pub address: u64,
    /// Whether the compiler put this function's code into the one of the next frame.
    pub is_inlined: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Innermost first.
    pub frames: Vec<Frame>,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
}
