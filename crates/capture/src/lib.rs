//! Capture: BPF programs in the running kernel, and the code that loads, attaches and decodes them.
//!
//! [`Tracer`] is the door: load it, attach images to it, and drain what the kernel saw. Nothing here knows processes,
//! files on disk or the trace file.

pub mod apis;
mod attach;
mod calibration;
mod counts;
mod families;
mod image;
mod kernel;
mod probes;
mod recorder;
mod ring;
mod site;
mod tracer;
mod wire;
mod yardstick;

pub use apis::LIBRARIES;
pub use attach::AttachPath;
pub use calibration::{Calibration, Runs};
pub use counts::{CountDelta, Hits};
pub use image::{Image, Probe, Variable};
pub use kernel::{Capability, Problem, capabilities};
pub use probes::{AttachReport, InBursts, MOST_EXEMPT, Sampling};
pub use tracer::{Filter, Layers, Options, RunTime, Tracer};
pub use wire::{
    Device, FileMapped, FinishedIo, IoSums, Life, Owner, RawCall, RawStretch, RawWork, Record, Target, TargetName,
    TaskId, ThreadSeen, ThreadSnapshot, row, rows,
};
pub use yardstick::Yardstick;
