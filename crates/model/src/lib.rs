//! The words every other crate uses: what a call is, who made it, how its time was split, what was lost, and what
//! tracing cost.
//!
//! Nothing here does I/O or reads a clock. Times are Unix epoch nanoseconds, durations are nanoseconds.

mod api;
mod call;
mod cause;
mod cost;
mod finding;
mod histogram;
mod loss;
mod moment;
mod note;
mod process;
mod session;
mod stack;
mod stretch;
mod wait;

pub use api::{CallClass, Direction, Layer};
pub use call::{Call, CallStats, ModuleId, OpId, ProcessId, StackId, ThreadId, ThreadTimes, Wait};
pub use cause::Cause;
pub use cost::{AgentUsage, Calibration, Rung, RungChange};
pub use finding::{
    Breakdown, Chain, Coverage, Culprit, Edge, Evidence, Explanation, Finding, Impact, Part, Place, PlaceKind, Role,
    RuledOut, Sampled, Severity, Span, StepChange, Steps, Symptom, TimePart, Victim, WalksEnded,
};
pub use histogram::Histogram;
pub use loss::{LossReason, Losses};
pub use moment::UnixNs;
pub use note::{Note, NoteKind};
pub use process::{LifeKind, Process, ProcessLife};
pub use session::{Session, SessionEnd};
pub use stack::{Frame, FrameKind, PythonEnd, Stack, StackMoment, StackSample, StackWalks, WalkEnd};
pub use stretch::{
    CpuTaker, IoRequest, IoUsage, KernelWork, StandsFor, Stretch, TargetId, TargetKind, WaitTarget, WorkKind,
};
pub use wait::WaitReason;
