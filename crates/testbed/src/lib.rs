//! Fake CUDA libraries and workloads whose behaviour is known exactly, for tests and demos without a GPU.
//!
//! The libraries export the real symbols, and each function does what the workload told it to do: return, burn CPU,
//! sleep, wait for another thread, read a disk, fail. Workloads print the truth about what they did. Scenarios are jobs
//! with a real fault of known cause and culprit, each with a healthy twin. Witnesses are programs whose stacks are
//! known.

mod bench;
mod child;
mod conditions;
mod files;
mod launch_loop;
mod ranks;
pub mod scenarios;
#[cfg(feature = "stacks")]
pub mod stacks;
mod truth;
mod wheels;
mod workload;

pub use bench::{Bench, Round};
pub use conditions::{Undisturbed, left_out, needs_root, stolen_ns};
pub use files::Testbed;
pub use launch_loop::{LaunchLoop, LoopTruth, RunningLoop, Slice, SlowOpTruth, ThreadSlice, ThreadTruth};
pub use ranks::{Operation, Ranks};
pub use scenarios::{
    CulpritTruth, Measured, Need, RunningScenario, SCENARIOS, Scenario, ScenarioTruth, Setup, SourceLine,
};
pub use truth::{CallTruth, ClockTruth, EndTruth, Truth};
pub use wheels::{CudaRuntime, debian_file, real_libnccl};
pub use workload::{Behaviour, Running, Workload};
