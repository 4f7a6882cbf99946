//! What NVIDIA's GPUs say of themselves, through the driver's library NVML: when they worked, for whom, what of them was in
//! use, how fast they are and could be, and how they are.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use gpuwhy_model::Sample;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, Sampling, TemperatureSensor};
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

struct Gpus {
    nvml: &'static Nvml,
    known: Vec<Known>,
}

/// What is known of a GPU from the last time.
struct Known {
    /// Until when its utilization is known, on the library's clock.
    until_us: u64,
    in_use: Option<GpmSample<'static>>,
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
    let known = (0..count).map(|_| Known { until_us: now_us, in_use: None }).collect();
    Some(Box::new(Gpus { nvml, known }))
}

impl Sampler for Gpus {
    fn measure(&mut self) -> Vec<Measured> {
        let mut measured = Vec::new();
        for (number, known) in (0..).zip(&mut self.known) {
            // One that fell off the bus, or says nothing about itself, leaves the others.
            let Ok(device) = self.nvml.device_by_index(number) else { continue };
            let one =
                |name, unit, value, at_ns| Measured { name, unit, device: Some(number.to_string()), value, at_ns };
            for (at_us, share) in utilization(&device, known.until_us) {
                known.until_us = at_us.max(known.until_us);
                measured.push(one(Sample::GPU_UTILIZATION, "share", share, Some(at_us * 1000)));
            }
            if let Ok(processes) = device.running_compute_processes() {
                measured.push(one(Sample::GPU_PROCESSES, "", processes.len() as f64, None));
                measured.extend(processes.iter().filter_map(|process| memory_of(process, number)));
            }
            let memory = device.memory_info().ok();
            measured.extend(memory.map(|memory| one("gpu.memory.used", "bytes", memory.used as f64, None)));
            let health = health(&device).into_iter().filter_map(|(name, unit, value)| Some((name, unit, value?)));
            measured.extend(health.map(|(name, unit, value)| one(name, unit, value, None)));
            measured.extend(in_use(self.nvml, &device, known).map(|(name, unit, value)| one(name, unit, value, None)));
        }
        measured
    }
}

fn memory_of(process: &ProcessInfo, gpu: u32) -> Option<Measured> {
    let UsedGpuMemory::Used(bytes) = process.used_gpu_memory else { return None };
    let device = Some(format!("{gpu}/{}", process.pid));
    Some(Measured { name: Sample::GPU_PROCESS_MEMORY, unit: "bytes", device, value: bytes as f64, at_ns: None })
}

/// Since the last time. Most GPUs do not tell.
fn in_use(
    nvml: &'static Nvml,
    device: &Device<'static>,
    known: &mut Known,
) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    let now = device.gpm_support().ok().filter(|is_told| *is_told).and_then(|_| device.gpm_sample().ok());
    let before = std::mem::replace(&mut known.in_use, now);
    let metrics = before.zip(known.in_use.as_ref()).and_then(|(before, now)| {
        let wanted = IN_USE.map(|(metric, ..)| metric);
        gpm_metrics_get(nvml, &before, now, &wanted).ok()
    });
    let told = IN_USE.into_iter().zip(metrics.unwrap_or_default());
    told.filter_map(|((_, name, unit, factor), metric)| Some((name, unit, metric.ok()?.value * factor)))
}

/// What it says of its speed and its troubles. Not every GPU knows all of it.
fn health(device: &Device<'_>) -> [(&'static str, &'static str, Option<f64>); 11] {
    let whole = |value: Result<u32, NvmlError>| value.ok().map(f64::from);
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    [
        (Sample::GPU_THROTTLE, "", device.current_throttle_reasons().ok().map(|reasons| reasons.bits() as f64)),
        (Sample::GPU_CLOCK, "MHz", whole(device.clock_info(Clock::SM))),
        (Sample::GPU_MOST_CLOCK, "MHz", whole(device.max_clock_info(Clock::SM))),
        (Sample::GPU_MEMORY_ERRORS, "", errors.ok().map(|count| count as f64)),
        ("gpu.temperature", "C", whole(device.temperature(TemperatureSensor::Gpu))),
        ("gpu.power", "W", whole(device.power_usage()).map(|milliwatts| milliwatts / 1000.0)),
        ("gpu.energy", "J", device.total_energy_consumption().ok().map(|millijoules| millijoules as f64 / 1000.0)),
        ("gpu.pcie.generation", "", whole(device.current_pcie_link_gen())),
        ("gpu.pcie.generation.max", "", whole(device.max_pcie_link_gen())),
        ("gpu.pcie.width", "", whole(device.current_pcie_link_width())),
        ("gpu.pcie.width.max", "", whole(device.max_pcie_link_width())),
    ]
}

/// The library keeps a value for each fifth of a second or so, and for many seconds.
fn utilization(device: &Device<'_>, after_us: u64) -> Vec<(u64, f64)> {
    let samples = device.samples(Sampling::GpuUtilization, after_us).unwrap_or_default();
    samples.iter().map(|sample| (sample.timestamp, percent(&sample.value) / 100.0)).collect()
}

fn percent(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => value.into(),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    }
}
