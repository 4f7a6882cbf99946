//! What is known about the host when a session starts.

use std::path::Path;

use gpuwhy_capture::{Calibration, Yardstick};
use gpuwhy_model::Session;

use crate::clock;
use crate::gpus::Gpus;

pub fn describe(
    started_ns: u64,
    yardstick: Yardstick,
    calibration: &Calibration,
    budget: Option<f64>,
    gpus: &Gpus,
) -> Session {
    let figures = calibration.figures();
    Session {
        started_ns,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: line("/proc/sys/kernel/hostname"),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        kernel: line("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        gpus: gpus.lines(),
        driver: gpus.driver.clone(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
        attach_path: yardstick.path.as_str().to_owned(),
        probe_cost_ns: Some(yardstick.probe_ns),
        calibrations: figures.map(|(what, ns)| gpuwhy_model::Calibration { what: what.to_owned(), ns }).into(),
        budget,
        is_virtual_machine: calibration.is_virtual_machine,
    }
}

fn line(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// CPU time this process has used so far.
pub fn own_cpu_ns() -> u64 {
    clock::read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
