//! Capture: BPF programs in the running kernel, and the code that loads, attaches and decodes them.
//!
//! [`Tracer`] is the door: load it, attach images to it, and drain what the kernel saw. Nothing here knows processes,
//! files on disk or the trace file.

// A test includes a file of the agent, which calls this crate by its name.
#[cfg(test)]
extern crate self as gpuwhy_capture;

mod attach;
mod calibration;
mod call_table;
mod counts;
mod families;
mod features;
mod image;
mod kernel;
mod probes;
mod recorder;
mod ring;
mod run_time;
mod site;
mod skeleton;
mod stacks;
mod tracer;
#[cfg(test)]
mod unwinder_tests;
mod wire;
mod yardstick;

pub use attach::AttachPath;
pub use calibration::Calibration;
pub use counts::{CountDelta, Hits};
pub use families::FamilyState;
pub use features::{
    FEATURES, Feature, FeatureState, Found, Kernel, Need, RunningKernel, Without, features, required_features,
};
pub use image::{Image, Probe, interpreter};
pub use kernel::{Capability, Problem, capabilities};
pub use probes::{AttachReport, InBursts, MOST_EXEMPT, Sampling};
pub use ring::Bell;
pub use run_time::Runs;
pub use stacks::{CodeMapping, PythonFlags, PythonLayout, PythonProcess, StackTables, TableId, UnwindRow, WalkCount};
pub use tracer::{Filter, Layers, Options, RunTime, StackAllowance, Tracer};
pub use wire::{
    Device, FileMapped, FinishedIo, IoSums, Life, OpenCall, Owner, RawCall, RawCode, RawPythonFrame, RawSample,
    RawStack, RawStretch, RawWork, Record, Retransmit, StackHash, Standing, Target, TargetName, TaskId, ThreadSeen,
    ThreadSnapshot,
};
pub use yardstick::Yardstick;
