//! A stack as a person reads it: from the innermost frame outwards, Python's and native frames in one order.

use serde::Serialize;

use crate::api::words;
use crate::record::record;
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

record! {
    /// How many walks ended in the same way within one bucket of time, whether their stacks were kept or not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    StackWalks in stack_walks (bucket_ns, session_id, moment, end, python_end) since 4 "The table behind `stack_stats`."
    given 1 {
        /// The run of the tracer: `sessions.id`.
        session_id: u32;
    }
    {
        /// Start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// When the stack was taken: `call` (at the return of a slow call), `wait` (when a thread left the CPU to wait),
        /// `waker` (when a thread ended another one's wait) or `sample` (now and then, while it ran).
        moment: StackMoment;
        /// How the walk over native frames ended, as in `stacks`.
        end: WalkEnd;
        /// How the walk over Python's frames ended, as in `stacks`.
        python_end: PythonEnd;
        /// Walks that ended so.
        count: u64 [unit("walks"), merge(Add)];
        /// How long they took, together.
        ns in walking_ns: u64 [unit("ns"), merge(Add)];
    }
}

impl StackWalks {
    /// As answers say it.
    pub fn ended(&self) -> WalksEnded {
        let Self { moment, end, python_end, count, .. } = *self;
        WalksEnded { moment, end, python_end, count }
    }
}

record! {
    /// How often a running thread was seen with a stack, in a bucket of time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    StackSample in stack_samples (bucket_ns, thread_id, stack_id) since 4 "The table behind `run_sites`."
    {
        /// When it was seen, for threads that make calls; for others the start of the second.
        bucket_ns: u64 [unit("ns since epoch")];
        /// `threads.id`.
        thread in thread_id: ThreadId;
        /// `stacks.id`.
        stack in stack_id: StackId;
        /// How often the thread was seen running with this stack.
        count: u64 [merge(Add)];
    }
}

record! {
    /// One frame. Names that are not known are empty.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
    Frame in frames (id) since 4 "Frames, each stored once. Read `stack_lines` instead."
    given 0 {
        /// Names the frame.
        id: u32;
    }
    {
        /// What it runs: `python`, `native` (code of a file), `jit` (code that belongs to no file) or `kernel`.
        kind: FrameKind;
        /// Demangled name, or Python's qualified name; an empty text where it is not known.
        function: String;
        /// The source file.
        file: Option<String>;
        /// The line that was being executed.
        line: Option<u32>;
        /// Path of the file that holds the code, as the process sees it.
        module: Option<String>;
        /// Address in the module as tools print it, in memory where there is none, or Python's bytecode offset; 64 bits
        /// shown as a signed number.
        address: u64 as Bits;
        /// 1 when the compiler put the function's code into that of the next frame.
        is_inlined: bool;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Innermost first.
    pub frames: Vec<Frame>,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
}
