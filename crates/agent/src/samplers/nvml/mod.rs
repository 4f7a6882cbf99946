//! What NVIDIA's GPUs say of themselves, through the driver's library NVML: when they worked, for whom, what of them was in
//! use, how fast they are and could be, and how they are.
//!
//! A GPU is asked twice a second whether it is there and how its link to the host is, and for everything else once a second.

mod health;
mod links;
mod slices;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use gpuwhy_model::Sample;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::{Measured, Sampler};
use crate::clock::Reading;

const LIBRARY: &str = "libnvidia-ml.so.1";

/// What of a GPU was in use between two moments, on Hopper and later: how NVML calls it, what we do, and how much of our unit
/// its unit is.
const IN_USE: [(GpmMetricId, &str, &str, f64); 8] = [
    (GpmMetricId::SmUtil, "gpu.sm.utilization", "share", 0.01),
    (GpmMetricId::SmOccupancy, "gpu.sm.occupancy", "share", 0.01),
    (GpmMetricId::AnyTensorUtil, "gpu.tensor.utilization", "share", 0.01),
    (GpmMetricId::DramBwUtil, "gpu.memory.bandwidth", "share", 0.01),
    (GpmMetricId::PcieTxPerSec, "gpu.pcie.sent", "bytes/s", MEBIBYTE),
    (GpmMetricId::PcieRxPerSec, "gpu.pcie.received", "bytes/s", MEBIBYTE),
    (GpmMetricId::NvlinkTotalTxPerSec, "gpu.nvlink.sent", "bytes/s", MEBIBYTE),
    (GpmMetricId::NvlinkTotalRxPerSec, "gpu.nvlink.received", "bytes/s", MEBIBYTE),
];

const MEBIBYTE: f64 = 1_048_576.0;

/// The library is initialised once, and what it hands out is as good as it is.
static NVML: OnceLock<Option<Nvml>> = OnceLock::new();

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// From this share of each moment on, a GPU works.
const WORKS: f64 = 0.5;

struct Gpus {
    nvml: &'static Nvml,
    known: Vec<Known>,
    looks: u64,
}

/// What is known of a GPU from the last time.
#[derive(Default)]
struct Known {
    /// Until when its utilization is known, on the library's clock.
    until_us: u64,
    has_answered: bool,
    in_use: Option<GpmSample<'static>>,
    links: links::Known,
    slices: slices::Known,
}

/// What is told of a GPU.
struct Told {
    gpu: String,
    measured: Vec<Measured>,
}

impl Told {
    fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.add_of(self.gpu.clone(), name, unit, value);
    }

    /// What is told of a part of it.
    fn add_of(&mut self, device: String, name: &'static str, unit: &'static str, value: f64) {
        self.measured.push(Measured { name, unit, device: Some(device), value, at_ns: None });
    }

    /// What not every GPU knows.
    fn add_known(&mut self, name: &'static str, unit: &'static str, value: Option<f64>) {
        if let Some(value) = value {
            self.add(name, unit, value);
        }
    }
}

/// The library is found by its name, which knows of no other root.
pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    if root != Path::new("/") {
        return None;
    }
    let nvml = NVML.get_or_init(|| Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()).as_ref()?;
    let count = nvml.device_count().ok().filter(|&count| count > 0)?;
    // It also knows the seconds before now.
    let now_us = Reading::now().unix_ns / 1000;
    let known = (0..count).map(|_| Known { until_us: now_us, ..Known::default() }).collect();
    Some(Box::new(Gpus { nvml, known, looks: 0 }))
}

impl Sampler for Gpus {
    fn every(&self) -> Duration {
        LOOK_EVERY
    }

    fn measure(&mut self) -> Vec<Measured> {
        let is_full = self.looks.is_multiple_of(2);
        self.looks += 1;
        let mut measured = Vec::new();
        for (number, known) in (0u32..).zip(&mut self.known) {
            let mut told = Told { gpu: number.to_string(), measured: Vec::new() };
            look(self.nvml, number, known, is_full, &mut told);
            measured.append(&mut told.measured);
        }
        measured
    }
}

fn look(nvml: &'static Nvml, number: u32, known: &mut Known, is_full: bool, told: &mut Told) {
    let device = match there(nvml.device_by_index(number), known.has_answered) {
        Some(Ok(device)) => device,
        Some(Err(Lost)) if known.has_answered => return told.add(Sample::GPU_LOST, "", 1.0),
        Some(Err(Lost)) => return told.add(Sample::GPU_LOST, "", Sample::GPU_NEVER_THERE),
        None => return,
    };
    known.has_answered = true;
    let is_working = utilization(&device, known, told);
    links::to_host(&device, is_working, is_full, told);
    if !is_full {
        return;
    }
    told.add(Sample::GPU_LOST, "", 0.0);
    links::to_gpus(&device, &mut known.links, told);
    let is_divided = slices::tell(&device, &mut known.slices, told);
    processes(&device, is_divided, told);
    told.add_known("gpu.memory.used", "bytes", device.memory_info().ok().map(|memory| memory.used as f64));
    health::tell(&device, told);
    in_use(nvml, &device, known, told);
}

/// A GPU that has fallen off the bus, or that is not there any more.
struct Lost;

/// One that cannot say anything about itself for another reason leaves the others.
fn there(found: Result<Device<'static>, NvmlError>, has_answered: bool) -> Option<Result<Device<'static>, Lost>> {
    match found {
        Err(NvmlError::GpuLost) => Some(Err(Lost)),
        Err(NvmlError::NotFound | NvmlError::InvalidArg) if has_answered => Some(Err(Lost)),
        Err(_) => None,
        Ok(device) if matches!(device.memory_info(), Err(NvmlError::GpuLost)) => Some(Err(Lost)),
        Ok(device) => Some(Ok(device)),
    }
}

/// What a process has of the memory of a slice is told of the slice.
fn processes(device: &Device<'_>, is_divided: bool, told: &mut Told) {
    let Ok(processes) = device.running_compute_processes() else { return };
    told.add(Sample::GPU_PROCESSES, "", processes.len() as f64);
    if !is_divided {
        let gpu = told.gpu.clone();
        processes.iter().for_each(|process| memory_of(process, &gpu, told));
    }
}

fn memory_of(process: &ProcessInfo, of: &str, told: &mut Told) {
    if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
        told.add_of(format!("{of}/{}", process.pid), Sample::GPU_PROCESS_MEMORY, "bytes", bytes as f64);
    }
}

/// Since the last time. Most GPUs do not tell.
fn in_use(nvml: &'static Nvml, device: &Device<'static>, known: &mut Known, told: &mut Told) {
    let now = device.gpm_support().ok().filter(|is_told| *is_told).and_then(|_| device.gpm_sample().ok());
    let before = std::mem::replace(&mut known.in_use, now);
    let metrics = before.zip(known.in_use.as_ref()).and_then(|(before, now)| {
        let wanted = IN_USE.map(|(metric, ..)| metric);
        gpm_metrics_get(nvml, &before, now, &wanted).ok()
    });
    for ((_, name, unit, factor), metric) in IN_USE.into_iter().zip(metrics.unwrap_or_default()) {
        told.add_known(name, unit, metric.ok().map(|metric| metric.value * factor));
    }
}

/// The library keeps a value for each fifth of a second or so, and for many seconds. Returns whether the GPU has worked in
/// each of them since the last time.
fn utilization(device: &Device<'_>, known: &mut Known, told: &mut Told) -> bool {
    let samples = device.samples(Sampling::GpuUtilization, known.until_us).unwrap_or_default();
    for sample in &samples {
        let (at_us, value) = (sample.timestamp, number(&sample.value) / 100.0);
        known.until_us = at_us.max(known.until_us);
        let (name, device, at_ns) = (Sample::GPU_UTILIZATION, Some(told.gpu.clone()), Some(at_us * 1000));
        told.measured.push(Measured { name, unit: "share", device, value, at_ns });
    }
    !samples.is_empty() && samples.iter().all(|sample| number(&sample.value) / 100.0 >= WORKS)
}

/// What a number of the library's is, of whatever type.
fn number(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => value.into(),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    }
}
