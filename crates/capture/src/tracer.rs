//! The tracer as a whole: all families in the kernel, files attached, records drained.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_model::{Layer, LossReason, Losses};
use libbpf_rs::{Iter, MapCore, MapFlags};

use crate::apis::When;
use crate::attach::{AttachPath, Attached, leave_to_child};
use crate::counts::{CallCounts, CountDelta};
use crate::families::calls::{Calls, types};
use crate::families::{FAMILIES, Loaded, Settings, SharedMaps};
use crate::image::{Image, Probe};
use crate::ring::{RingReader, Rings};
use crate::wire::{FileMapped, Owner, Record, ThreadSnapshot, row};
use crate::yardstick::Yardstick;

/// Whom to trace.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// These processes and their descendants; everybody when empty and `only_targets` is not set.
    pub pids: Vec<u32>,
    /// Trace named processes only, also while none is named yet.
    pub only_targets: bool,
    pub uid: Option<u32>,
}

/// Which layers to probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// The driver, and of the runtime what the driver does not show.
    #[default]
    DriverFirst,
    Driver,
    Runtime,
    Both,
}

impl Layers {
    fn include(self, probe: &Probe) -> bool {
        let Some(row) = row(probe.row) else { return false };
        match (self, row.layer()) {
            (Self::Both, _) | (Self::DriverFirst | Self::Driver, Layer::Driver) | (Self::Runtime, Layer::Runtime) => {
                true
            }
            (Self::DriverFirst, Layer::Runtime) => row.api.when == When::ItsLayerOrTheDriverIs,
            (Self::Driver, Layer::Runtime) | (Self::Runtime, Layer::Driver) => false,
        }
    }
}

fn is_learning(probe: &Probe) -> bool {
    row(probe.row).is_some_and(|row| row.api.when == When::Learning)
}

#[derive(Clone, Debug)]
pub struct Options {
    pub filter: Filter,
    pub layers: Layers,
    /// Forces an attach path; the best one the kernel has otherwise.
    pub path: Option<AttachPath>,
    pub ring_bytes: usize,
    /// Calls at least this long get a record; all are counted.
    pub keep_min_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            layers: Layers::default(),
            path: None,
            ring_bytes: Rings::default_bytes(),
            keep_min_ns: 0,
        }
    }
}

/// `File` is the caller's name for an attached file.
pub struct Tracer<File> {
    attached: HashMap<File, Attached>,
    learning: Vec<Attached>,
    families: Vec<Loaded>,
    reader: RingReader,
    counts: CallCounts,
    shared: SharedMaps,
    calls: Calls,
    layers: Layers,
    _rings: Rings,
    pub yardstick: Yardstick,
    /// What is missing because the kernel refused a family.
    pub warnings: Vec<String>,
}

impl<File: Eq + Hash> Tracer<File> {
    pub fn load(options: &Options) -> Result<Self> {
        let yardstick = match options.path {
            Some(path) => Yardstick::measure_path(path).with_context(|| format!("try the {} path", path.as_str())),
            None => Yardstick::measure(),
        }?;
        let rings = Rings::create(libbpf_rs::num_possible_cpus()?, options.ring_bytes)?;
        let settings = Settings {
            tracer_pid: std::process::id(),
            ring_mask: rings.mask(),
            filter_targets: options.filter.only_targets || !options.filter.pids.is_empty(),
            target_user: options.filter.uid,
        };
        let calls = Calls::load(&settings, yardstick.path).context("load the call tracer")?;
        calls.describe_rows(options.keep_min_ns)?;
        let shared = calls.shared_maps()?;
        rings.install(&shared.rings)?;
        let (counts, free_slots) = calls.counts_maps()?;
        let mut tracer = Self {
            attached: HashMap::new(),
            learning: Vec::new(),
            families: Vec::new(),
            reader: rings.reader()?,
            counts: CallCounts::new(&counts, free_slots)?,
            shared,
            calls,
            layers: options.layers,
            _rings: rings,
            yardstick,
            warnings: Vec::new(),
        };
        for &pid in &options.filter.pids {
            tracer.add_target(pid)?;
        }
        tracer.load_families(&settings)?;
        Ok(tracer)
    }

    fn load_families(&mut self, settings: &Settings) -> Result<()> {
        for family in FAMILIES {
            match ((family.load)(settings, &self.shared), family.without) {
                (Ok(loaded), _) => self.families.push(loaded),
                (Err(error), None) => return Err(error.context(format!("load the {} family", family.name))),
                (Err(error), Some(missing)) => {
                    self.warnings
                        .push(format!("the kernel refuses the {} family ({error:#}): no {missing}", family.name));
                }
            }
        }
        Ok(())
    }

    /// Traces a process and, from now on, whatever it forks.
    pub fn add_target(&mut self, pid: u32) -> Result<()> {
        self.shared
            .targets
            .update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
            .with_context(|| format!("add process {pid} to the targets"))?;
        self.calls.raise_generation();
        Ok(())
    }

    /// Forgets a target. What it forked meanwhile stays one.
    pub fn remove_target(&mut self, pid: u32) -> Result<()> {
        self.shared
            .targets
            .delete(&pid.to_ne_bytes())
            .with_context(|| format!("remove process {pid} from the targets"))?;
        self.calls.raise_generation();
        Ok(())
    }

    /// Probes a file in every process that maps it, now and later. `None` when there is nothing to probe in it.
    pub fn attach(&mut self, file: File, path: &Path, image: &Image) -> Option<&Attached> {
        let layers = self.layers;
        let is_asked_for = |probe: &&Probe| !is_learning(probe) && layers.include(probe);
        let probes: Vec<Probe> = image.probes.iter().filter(is_asked_for).cloned().collect();
        if probes.is_empty() {
            return None;
        }
        let attached = Attached::attach(&self.calls.programs(), path, &probes);
        Some(self.attached.entry(file).insert_entry(attached).into_mut())
    }

    /// For threads that selected their device before the file was attached: probes the functions that tell it, until
    /// [`Tracer::stop_learning`].
    pub fn learn(&mut self, path: &Path, image: &Image) {
        let probes: Vec<Probe> = image.probes.iter().filter(|probe| is_learning(probe)).cloned().collect();
        self.learning.push(Attached::attach(&self.calls.programs(), path, &probes));
    }

    pub fn stop_learning(&mut self) {
        self.learning.clear();
    }

    /// Until this is said of a file, every process that maps it is told of.
    pub fn looked_at(&mut self, file: &FileMapped) -> Result<()> {
        let mut maps = self.families.iter().filter_map(|family| family.seen_files.as_ref());
        maps.try_for_each(|seen| seen.update(&file.key(), &[1], MapFlags::ANY)).context("remember a file")
    }

    /// Sleeps until it is time to drain.
    pub fn wait(&self, time: Duration) {
        self.reader.wait(time);
    }

    pub fn drain(&mut self) -> Vec<Record> {
        self.counts.expect_new();
        self.reader.drain()
    }

    /// Ends a bucket of time: what was counted in it, and where watched threads' time has gone so far.
    pub fn tick(&mut self) -> Result<(Vec<CountDelta>, Vec<ThreadSnapshot>)> {
        let ended = self.calls.next_epoch();
        let counts = self.counts.read(ended);
        Ok((counts, self.thread_clocks()?))
    }

    /// The last counts of a thread that ended or runs another program now.
    pub fn close(&mut self, owner: Owner) -> Vec<CountDelta> {
        let epoch = self.calls.epoch();
        self.counts.close(owner, epoch)
    }

    /// Threads that hold counters, when counters are running out: news of some thread's end may have been lost.
    pub fn suspects(&self) -> Vec<Owner> {
        if self.counts.is_nearly_full() { self.counts.owners().collect() } else { Vec::new() }
    }

    fn thread_clocks(&self) -> Result<Vec<ThreadSnapshot>> {
        let Some(link) = self.families.iter().find_map(|family| family.thread_clocks.as_ref()) else {
            return Ok(Vec::new());
        };
        let mut bytes = Vec::new();
        Iter::new(link).context("open the task iterator")?.read_to_end(&mut bytes).context("read thread clocks")?;
        Ok(bytes.chunks_exact(ThreadSnapshot::WIRE_SIZE).filter_map(ThreadSnapshot::decode).collect())
    }

    /// What the kernel side could not keep, since the start.
    pub fn losses(&self) -> Result<Losses> {
        let mut losses = Losses::default();
        for &reason in &LossReason::ALL[..types::loss_reason::LOSS_REASONS.0 as usize] {
            let key = (reason as u32).to_ne_bytes();
            let per_cpu = self.shared.losses.lookup_percpu(&key, MapFlags::ANY)?.unwrap_or_default();
            let total = per_cpu.iter().filter_map(|bytes| bytes.as_slice().try_into().ok()).map(u64::from_ne_bytes);
            losses.set(reason, total.sum());
        }
        losses.set(LossReason::ProbeMissed, self.calls.missed());
        losses.set(LossReason::Malformed, self.reader.malformed());
        Ok(losses)
    }

    /// Takes all probes out. What was written before is still there to be drained.
    pub fn detach(&mut self) -> Result<()> {
        let attached = self.attached.drain().map(|(_, attached)| attached).chain(self.learning.drain(..));
        if self.yardstick.path != AttachPath::Single {
            attached.for_each(drop);
            return Ok(());
        }
        self.calls.pause();
        leave_to_child(attached.collect()).context("leave the removal of probes to a child")
    }

    /// What is left once everything is detached.
    pub fn drain_all(&mut self) -> Vec<Record> {
        self.counts.expect_new();
        self.reader.drain_all()
    }
}
