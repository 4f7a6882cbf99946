//! What is measured again and again beside the calls: pressure on the host, its memory, later devices and links.
//!
//! To add a sampler, write its file and its line in [`SAMPLERS`]. Each has a thread: a driver that does not answer, because its
//! device is broken, delays nobody else.

mod amd;
mod kernel_log;
mod memory;
mod nvml;
mod pressure;
mod rdma;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use gpuwhy_model::Sample;

use crate::clock::Reading;

/// Every sampler there is. One that finds nothing to measure on this host is not opened.
pub const SAMPLERS: &[Open] = &[pressure::open, memory::open, nvml::open, kernel_log::open, amd::open, rdma::open];

/// Gets the root of the file system, so that tests can hand in a tree of their own.
type Open = fn(&Path) -> Option<Box<dyn Sampler>>;

pub trait Sampler: Send {
    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// What it measures right now.
    fn measure(&mut self) -> Vec<Measured>;
}

/// A value with its name, before it is known when it was measured.
pub struct Measured {
    pub name: &'static str,
    pub unit: &'static str,
    /// What it was measured on, where there is more than one.
    pub device: Option<String>,
    pub value: f64,
    /// When, if it was not just now.
    pub at_ns: Option<u64>,
}

/// Batches that may wait to be taken. The draining thread takes them when it drains.
const MOST_WAITING: usize = 64;

/// The handle of the threads. They end when this is dropped, and nobody waits for them.
pub struct Sampling {
    samples: Receiver<Vec<Sample>>,
    _stop: Sender<()>,
}

impl Sampling {
    pub fn start(root: &Path) -> Self {
        let (outbox, samples) = bounded(MOST_WAITING);
        let (stop, stopped) = bounded(0);
        for open in SAMPLERS {
            let (root, outbox, stopped) = (root.to_owned(), outbox.clone(), stopped.clone());
            // To open a driver's library may take seconds.
            thread::spawn(move || {
                if let Some(sampler) = open(&root) {
                    run(sampler, &outbox, &stopped);
                }
            });
        }
        Self { samples, _stop: stop }
    }

    /// What was measured since the last time.
    pub fn take(&self) -> Vec<Sample> {
        self.samples.try_iter().flatten().collect()
    }
}

fn run(mut sampler: Box<dyn Sampler>, outbox: &Sender<Vec<Sample>>, stopped: &Receiver<()>) {
    let mut due = Instant::now();
    loop {
        let wait = due.saturating_duration_since(Instant::now());
        if !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        due = Instant::now() + sampler.every();
        // Where nobody takes samples for a minute, new ones would say nothing to anybody.
        let _ = outbox.try_send(measure(sampler.as_mut()));
    }
}

fn measure(sampler: &mut dyn Sampler) -> Vec<Sample> {
    let measured = sampler.measure();
    let at_ns = Reading::now().unix_ns;
    let sample = |one: Measured| Sample {
        at_ns: one.at_ns.unwrap_or(at_ns),
        name: one.name.to_owned(),
        unit: one.unit.to_owned(),
        device: one.device,
        value: one.value,
    };
    measured.into_iter().map(sample).collect()
}

/// What a file of the kernel's says, where that is a number.
fn number_in(file: &Path) -> Option<f64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What is in a folder, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashbrown::HashSet;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn names_and_values(samples: &[Sample]) -> Vec<(String, Option<&str>, f64)> {
        samples.iter().map(|one| (one.name.clone(), one.device.as_deref(), one.value)).collect()
    }

    #[test]
    fn pressure_and_memory_are_read_from_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let io =
            "some avg10=1.50 avg60=0.50 avg300=0.10 total=12345\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=99\n";
        write(root.path(), "proc/pressure/io", io);
        write(root.path(), "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:    400 kB\nDirty: 3 kB\nSwapFree: 7 kB\n");
        let sampling = Sampling::start(root.path());
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut samples: Vec<Sample> = Vec::new();
        while samples.len() < 5 {
            assert!(Instant::now() < deadline, "{samples:?}");
            samples.extend(sampling.take());
            // Either sampler may be the first, or be there again.
            samples.sort_by_key(|one| !one.name.starts_with("host.pressure"));
            let mut seen = HashSet::new();
            samples.retain(|one| seen.insert(one.name.clone()));
        }
        assert_eq!(
            names_and_values(&samples),
            [
                ("host.pressure.some".to_owned(), Some("io"), 0.015),
                ("host.pressure.full".to_owned(), Some("io"), 0.0025),
                ("host.memory.available".to_owned(), None, 409_600.0),
                ("host.memory.dirty".to_owned(), None, 3072.0),
                ("host.swap.free".to_owned(), None, 7168.0),
            ]
        );
    }

    #[test]
    fn a_host_without_anything_to_measure_has_no_samples() {
        let root = tempfile::tempdir().unwrap();
        assert!(SAMPLERS.iter().all(|open| open(root.path()).is_none()));
        assert!(Sampling::start(root.path()).take().is_empty());
    }
}
