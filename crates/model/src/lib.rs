//! The words every other crate uses: what a call is, who made it, how its time was split, what was lost, and what
//! tracing cost.
//!
//! Nothing here does I/O or reads a clock. Times are Unix epoch nanoseconds, durations are nanoseconds.

mod annotation;
mod api;
mod call;
mod cause;
mod collective;
mod cost;
mod device_work;
mod fabric;
mod finding;
mod gpu_time;
mod histogram;
mod label;
mod loss;
mod meaning;
mod moment;
mod note;
mod operand;
mod process;
mod record;
mod reference;
mod row;
mod sample;
mod session;
mod stack;
mod stretch;
mod tcp;
mod totals;
pub mod units;
mod wait;

pub use annotation::Annotation;
pub use api::{CallClass, Direction, Layer};
pub use call::{Call, CallStats, ModuleId, OpId, ProcessId, StackId, TargetId, ThreadId, ThreadTimes, Wait};
pub use cause::Cause;
pub use collective::{CollectiveCapture, CollectiveReplay, CollectiveWait, order_of_launches};
pub use cost::{AgentUsage, Calibration, Rung, RungChange};
pub use device_work::{Awaited, DeviceAction, HAD_TO_WAIT_NS};
pub use fabric::{FabricEvent, FabricEventKind};
pub use finding::{
    Breakdown, Chain, Coverage, Culprit, Edge, Evidence, Explanation, Finding, Impact, Part, Place, PlaceKind,
    RankLateness, Role, RuledOut, Sampled, Severity, Span, StepChange, Steps, Symptom, TimePart, Victim, WalksEnded,
};
pub use gpu_time::{Contradiction, GpuTime, IdleBecause, Phase, PhaseName};
pub use histogram::Histogram;
pub use label::Label;
pub use loss::{LossReason, Losses};
pub use meaning::{GraphStep, Meaning, MemoryKind};
pub use moment::UnixNs;
pub use note::{Note, NoteKind};
pub use operand::{OperandKind, OwnOperand, OwnOperands, OwnValues};
pub use process::{LifeKind, Process, ProcessLife};
pub use record::{Cell, CellType, Column, Merge, Put, Record, Scalar, TableFacts, Take};
pub use reference::{NoReference, RecordKind, Reference};
pub use row::{Forgotten, Name, Row};
pub use sample::Sample;
pub use session::{Session, SessionEnd};
pub use stack::{Frame, FrameKind, PythonEnd, Stack, StackMoment, StackSample, StackWalks, WalkEnd};
pub use stretch::{
    CpuTaker, IoRequest, IoUsage, KernelWork, StandsFor, Standstill, Stretch, TargetKind, WaitTarget, WorkKind,
};
pub use tcp::{TcpEvent, TcpEventKind};
pub use totals::{Cost, SinkState, Totals};
pub use wait::WaitReason;
