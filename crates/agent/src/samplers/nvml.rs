//! What NVIDIA's GPUs say of themselves, through the driver's library NVML: when they worked, and for how many.

use std::ffi::OsStr;
use std::path::Path;

use gpuwhy_model::Sample;
use nvml_wrapper::enum_wrappers::device::Sampling;
use nvml_wrapper::enums::device::SampleValue;
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
        }
        measured
    }
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
