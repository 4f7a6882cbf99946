//! The host process: finds what to attach to, moves records from the kernel to the trace file, and says what it sees.
//!
//! Data flows one way: [`trace`] drains the kernel, the pipeline adds who and where, the store keeps it.

mod cgroups;
mod check;
mod clock;
mod discovery;
mod finder;
mod governor;
mod gpus;
mod live;
mod memory;
mod pipeline;
mod processes;
mod procfs;
mod session;
mod stacks;
mod target;
mod trace;
mod waits;
mod writing;

pub use check::{Check, PythonFrames, Report, UsesCuda, check};
pub use governor::{StackChoice, Thrift};
pub use gpus::Gpus;
pub use live::{CallSeen, Cost, Live, LiveRow, LiveThread, Watch};
pub use procfs::Procfs;
pub use target::{Target, user_id};
pub use trace::{Ended, Outcome, Signals, TraceOptions, trace};
