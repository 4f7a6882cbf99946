//! What NVIDIA's GPUs say of themselves, through the driver's library NVML: when they worked, for how many, how fast they
//! are and could be, and how they are.

use std::ffi::OsStr;
use std::path::Path;

use gpuwhy_model::Sample;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, Sampling, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::{Measured, Sampler};
use crate::clock::Reading;

const LIBRARY: &str = "libnvidia-ml.so.1";

struct Gpus {
    nvml: Nvml,
    /// Of each GPU: until when its utilization is known, on the library's clock.
    known_until_us: Vec<u64>,
}

/// The library is found by its name, which knows of no other root.
pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    if root != Path::new("/") {
        return None;
    }
    let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()?;
    let count = nvml.device_count().ok().filter(|&count| count > 0)?;
    // It also knows the seconds before now.
    let now_us = Reading::now().unix_ns / 1000;
    Some(Box::new(Gpus { nvml, known_until_us: vec![now_us; count as usize] }))
}

impl Sampler for Gpus {
    fn measure(&mut self) -> Vec<Measured> {
        let mut measured = Vec::new();
        for (number, known_until_us) in (0..).zip(&mut self.known_until_us) {
            // One that fell off the bus, or says nothing about itself, leaves the others.
            let Ok(device) = self.nvml.device_by_index(number) else { continue };
            let one =
                |name, unit, value, at_ns| Measured { name, unit, device: Some(number.to_string()), value, at_ns };
            for (at_us, share) in utilization(&device, *known_until_us) {
                *known_until_us = at_us.max(*known_until_us);
                measured.push(one(Sample::GPU_UTILIZATION, "share", share, Some(at_us * 1000)));
            }
            let processes = device.running_compute_processes_count().ok();
            measured.extend(processes.map(|count| one(Sample::GPU_PROCESSES, "", count.into(), None)));
            let memory = device.memory_info().ok();
            measured.extend(memory.map(|memory| one("gpu.memory.used", "bytes", memory.used as f64, None)));
            let health = health(&device).into_iter().filter_map(|(name, unit, value)| Some((name, unit, value?)));
            measured.extend(health.map(|(name, unit, value)| one(name, unit, value, None)));
        }
        measured
    }
}

/// What it says of its speed and its troubles. Not every GPU knows all of it.
fn health(device: &Device<'_>) -> [(&'static str, &'static str, Option<f64>); 10] {
    let whole = |value: Result<u32, NvmlError>| value.ok().map(f64::from);
    let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    [
        (Sample::GPU_THROTTLE, "", device.current_throttle_reasons().ok().map(|reasons| reasons.bits() as f64)),
        (Sample::GPU_CLOCK, "MHz", whole(device.clock_info(Clock::SM))),
        (Sample::GPU_MOST_CLOCK, "MHz", whole(device.max_clock_info(Clock::SM))),
        (Sample::GPU_MEMORY_ERRORS, "", errors.ok().map(|count| count as f64)),
        ("gpu.temperature", "C", whole(device.temperature(TemperatureSensor::Gpu))),
        ("gpu.power", "W", whole(device.power_usage()).map(|milliwatts| milliwatts / 1000.0)),
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
