//! The host process: finds what to attach to, moves records from the kernel to the trace file, and says what it sees.
//!
//! Data flows one way: [`trace`] drains the kernel, the pipeline adds who and where, and sinks take the named rows.

pub mod annotations;
mod cgroups;
mod check;
mod clock;
mod collectives;
mod discovery;
mod finder;
mod governor;
mod gpus;
mod items;
mod labels;
mod live;
mod loader;
mod memory;
mod naming;
mod options;
mod pipeline;
mod processes;
mod procfs;
mod samplers;
mod session;
mod sinks;
mod sockets;
mod stacks;
mod target;
mod trace;
mod waits;

pub use check::{Check, KernelFeature, PythonFrames, Report, UsesCuda, check};
pub use governor::{CostOptions, StackChoice};
pub use gpus::Gpus;
pub use live::{CallSeen, Live, LiveRow, LiveThread, Watch};
pub use options::TraceOptions;
pub use procfs::Procfs;
pub use target::{Target, user_id};
pub use trace::{Ended, Outcome, Signals, trace};
