//! The tracer as a whole: all families in the kernel, files attached, records drained.

use std::hash::Hash;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gpuwhy_apis::{When, row};
use gpuwhy_model::{Layer, LossReason, Losses, StackMoment};
use libbpf_rs::{Iter, Link, MapCore, MapFlags};

use crate::attach::{AttachPath, Attached, LinkKind, leave_to_child};
use crate::calibration::{Calibration, calibrate};
use crate::counts::{CallCounts, CountDelta, Hits};
use crate::families::calls::Calls;
use crate::families::{FAMILIES, FamilyState, Loaded, Settings, SharedMaps};
use crate::features::{FeatureState, Found, RunningKernel, STATE_AT_WAKEUPS, try_feature};
use crate::image::{Image, Probe};
use crate::probes::{AttachReport, Probes, Sampling};
use crate::recorder::Recorder;
use crate::ring::{Bell, RingReader, Rings, monotonic_ns};
use crate::run_time::{Runs, run_time, time_programs};
use crate::skeleton::types;
use crate::stacks::{self, StackTables, WalkCount};
use crate::wire::{Device, FileMapped, IoSums, OpenCall, Owner, RawCall, Record, TaskId, ThreadSnapshot, io_entry};
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
    /// The driver, and of the layers above what the driver does not show.
    #[default]
    DriverFirst,
    Driver,
    Runtime,
    Both,
}

impl Layers {
    fn include(self, probe: &Probe) -> bool {
        let Some(row) = row(probe.row) else { return false };
        match self {
            // What ranks do with each other shows in no other layer.
            _ if row.layer() == Layer::Collective => true,
            _ if row.layer() == Layer::Fabric => false,
            Self::DriverFirst => row.layer() == Layer::Driver || row.api.when == When::ItsLayerOrTheDriverIs,
            Self::Driver => row.layer() == Layer::Driver,
            Self::Runtime => row.layer() == Layer::Runtime,
            Self::Both => true,
        }
    }
}

fn is_of_fabric(probe: &Probe) -> bool {
    row(probe.row).is_some_and(|row| row.layer() == Layer::Fabric)
}

fn is_learning(probe: &Probe) -> bool {
    row(probe.row).is_some_and(|row| row.api.when == When::Learning)
}

#[derive(Clone, Debug)]
pub struct Options {
    pub filter: Filter,
    pub layers: Layers,
    /// Also what programs are told of the fabric between hosts.
    pub fabric: bool,
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
            fabric: false,
            path: None,
            ring_bytes: Rings::default_bytes(),
            keep_min_ns: 0,
        }
    }
}

/// How many stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StackAllowance {
    None,
    /// As many as take this part of a thread's time.
    Share(f64),
    /// Whatever that costs.
    All,
}

/// How long and how often programs have run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTime {
    /// Those of the scheduler and of processes.
    pub hooks: Runs,
    /// Those at the entry and return of calls.
    pub calls: Runs,
    /// How long walks over stacks have taken there, timed or not.
    pub call_stacks_ns: u64,
}

/// `File` is the caller's name for an attached file.
pub struct Tracer<File> {
    probes: Probes<File>,
    learning: Vec<Attached>,
    families: Vec<Loaded>,
    reader: RingReader,
    counts: CallCounts,
    recorder: Recorder,
    shared: SharedMaps,
    calls: Calls,
    layers: Layers,
    fabric: bool,
    _rings: Rings,
    pub yardstick: Yardstick,
    pub calibration: Calibration,
    /// Records of others that came while the own process was calibrated.
    early: Vec<Record>,
    losses_before: Losses,
    /// Families that there can be a trace without.
    pub optional: Vec<FamilyState>,
    state_at_wakeups: FeatureState,
}

impl<File: Eq + Hash> Tracer<File> {
    pub fn load(options: &Options) -> Result<Self> {
        let yardstick = match options.path {
            Some(path) => Yardstick::measure_path(path).with_context(|| format!("try the {} path", path.as_str())),
            None => Yardstick::measure(),
        }?;
        let kernel = RunningKernel::look();
        let state_at_wakeups = try_feature(&kernel, STATE_AT_WAKEUPS);
        let rings = Rings::create(libbpf_rs::num_possible_cpus()?, options.ring_bytes)?;
        let settings = Settings {
            tracer_pid: std::process::id(),
            ring_mask: rings.mask(),
            filter_targets: options.filter.only_targets || !options.filter.pids.is_empty(),
            target_user: options.filter.uid,
            state_at_wakeups: state_at_wakeups.found == Found::On,
            switches_say_state: kernel.arguments_of("sched_switch").is_some_and(|arguments| arguments > 3),
        };
        let calls = Calls::load(&settings, yardstick.path).context("load the call tracer")?;
        calls.describe_rows(options.keep_min_ns)?;
        let shared = calls.shared_maps()?;
        rings.install(&shared.rings)?;
        let (counts, free_slots) = calls.counts_maps()?;
        let mut tracer = Self {
            probes: Probes::default(),
            learning: Vec::new(),
            families: Vec::new(),
            reader: rings.reader()?,
            counts: CallCounts::new(counts, free_slots)?,
            recorder: Recorder::new(calls.recorder_map()?),
            shared,
            calls,
            layers: options.layers,
            fabric: options.fabric,
            _rings: rings,
            yardstick,
            calibration: Calibration::default(),
            early: Vec::new(),
            losses_before: Losses::default(),
            optional: Vec::new(),
            state_at_wakeups,
        };
        for &pid in &options.filter.pids {
            tracer.add_target(pid)?;
        }
        tracer.load_families(&settings)?;
        tracer.calibrate().context("measure what tracing costs")?;
        Ok(tracer)
    }

    fn calibrate(&mut self) -> Result<()> {
        let hooks: Vec<BorrowedFd<'_>> =
            self.families.iter().flat_map(|family| &family.programs).map(AsFd::as_fd).collect();
        let mut records = Vec::new();
        let drain = || records.extend(self.reader.drain());
        let (calibration, task) = calibrate(&mut self.calls, &mut self.counts, &hooks, drain)?;
        self.calibration = calibration;
        records.extend(self.reader.drain());
        self.forget(task, records)?;
        // A ring of the least size overflows all the same.
        self.losses_before = self.kernel_losses()?;
        Ok(())
    }

    /// What the calibration left behind is nobody's business.
    fn forget(&mut self, task: TaskId, mut records: Vec<Record>) -> Result<()> {
        self.counts.close(Owner { task, image: 0 }, self.calls.epoch());
        records.retain(|record| record.pid() != task.pid);
        self.early = records;
        self.shared.known_processes.delete(&task.pid.to_ne_bytes()).context("forget the own process")
    }

    fn load_families(&mut self, settings: &Settings) -> Result<()> {
        for family in FAMILIES {
            let loaded = (family.load)(settings, &self.shared);
            let Some(without) = family.without else {
                self.families.push(loaded.with_context(|| format!("load the {} family", family.name))?);
                continue;
            };
            let refused = loaded.map(|loaded| self.families.push(loaded)).err().map(|error| format!("{error:#}"));
            self.optional.push(FamilyState { name: family.name, without, refused });
        }
        Ok(())
    }

    /// What answers have to do without on this kernel.
    pub fn warnings(&self) -> Vec<String> {
        self.optional.iter().filter_map(FamilyState::warning).chain(self.state_at_wakeups.warning()).collect()
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
    pub fn attach(&mut self, file: File, path: &Path, image: &Image) -> Result<Option<AttachReport>> {
        let (layers, fabric) = (self.layers, self.fabric);
        let is_asked_for =
            |probe: &&Probe| !is_learning(probe) && (layers.include(probe) || (fabric && is_of_fabric(probe)));
        let probes: Vec<Probe> = image.probes.iter().filter(is_asked_for).cloned().collect();
        if probes.is_empty() {
            return Ok(None);
        }
        self.probes.add(file, path, probes, &self.calls).map(Some)
    }

    /// For threads that selected their device before the file was attached: probes the functions that tell it, until
    /// [`Tracer::stop_learning`].
    pub fn learn(&mut self, path: &Path, image: &Image) {
        let probes: Vec<Probe> = image.probes.iter().filter(|probe| is_learning(probe)).cloned().collect();
        self.learning.push(Attached::attach(&self.calls.programs(), path, &probes, LinkKind::FIRST));
    }

    pub fn stop_learning(&mut self) {
        self.probes.remove_meanwhile(std::mem::take(&mut self.learning));
    }

    /// Until this is said of a file, every process that maps it is told of.
    pub fn looked_at(&mut self, file: &FileMapped) -> Result<()> {
        let mut maps = self.families.iter().filter_map(|family| family.seen_files.as_ref());
        maps.try_for_each(|seen| seen.update(&file.key(), &[1], MapFlags::ANY)).context("remember a file")
    }

    /// For other threads, to end the sleep.
    pub fn bell(&self) -> Bell {
        self.reader.bell()
    }

    /// Sleeps until it is time to drain.
    pub fn wait(&self, time: Duration) {
        self.reader.wait(time);
    }

    pub fn drain(&mut self) -> Vec<Record> {
        self.counts.expect_new();
        let mut records = std::mem::take(&mut self.early);
        records.extend(self.reader.drain());
        records
    }

    /// How long programs have run in the kernel while [`Tracer::time_programs`] was held, on all CPUs.
    pub fn run_time(&self) -> RunTime {
        let hooks = self.families.iter().flat_map(|family| &family.programs).map(AsFd::as_fd);
        let walks = self.walk_counts().unwrap_or_default();
        let of_calls = walks.iter().filter(|walks| walks.moment == StackMoment::Call);
        let call_stacks_ns = of_calls.map(|walks| walks.ns).sum();
        RunTime { hooks: run_time(hooks), calls: self.calls.run_time(), call_stacks_ns }
    }

    /// Lets the kernel time BPF programs until the result is dropped, which costs each run two readings of a clock.
    pub fn time_programs(&self) -> Result<OwnedFd> {
        time_programs()
    }

    /// Ends a bucket of time: what was counted in it, and where watched threads' time has gone so far.
    pub fn tick(&mut self) -> Result<(Vec<CountDelta>, Vec<ThreadSnapshot>)> {
        self.vary_ticks();
        let ended = self.calls.next_epoch();
        let sampling = self.probes.sampling();
        let mut counts = self.counts.read(ended, |task, row| !sampling.covers(task.pid, row));
        counts.retain(|delta| delta.count > 0);
        Ok((counts, self.thread_clocks()?))
    }

    fn vary_ticks(&self) {
        for ticks in self.families.iter().filter_map(|family| family.ticks.as_ref()) {
            if let Err(error) = ticks.vary() {
                tracing::warn!("time between samples stays the same: {error}");
            }
        }
    }

    /// The totals of all counters, at the cost of a glance.
    pub fn hits(&mut self) -> Vec<Hits> {
        self.counts.hits()
    }

    /// Lets calls of this process and function get a record when they take at least this long; the last shorter ones
    /// stay in the recorder.
    pub fn keep_from(&mut self, pid: u32, row: u16, min_ns: u64) {
        self.counts.keep_from(pid, row, min_ns);
    }

    /// The last calls of a process that got no record and ended after this moment, as far as they are remembered.
    pub fn recorded(&self, pid: u32, after_ns: u64) -> Vec<RawCall> {
        self.recorder.read(pid, after_ns).inspect_err(|error| tracing::warn!("{error:#}")).unwrap_or_default()
    }

    pub fn sampling(&self) -> &Sampling {
        self.probes.sampling()
    }

    pub fn is_stepped(&self, row: u16) -> bool {
        self.probes.is_stepped(row)
    }

    /// Whether processes can be exempt from sampling: older kernels filter links by thread instead.
    pub fn can_exempt(&self) -> bool {
        self.yardstick.path == AttachPath::Session
    }

    /// Changes what is seen in bursts only; not while one is open. Returns the changes of counters up to the moment
    /// from which on it is so, for those that are seen in another way from then on, and that moment.
    pub fn sample(&mut self, wanted: Sampling) -> (u64, Vec<CountDelta>) {
        let before = self.probes.sampling().clone();
        let after = wanted.clone();
        let moment = self.probes.sample(wanted, &mut self.calls, monotonic_ns);
        let epoch = self.calls.epoch() - 1;
        let changes = |pid, row| before.covers(pid, row) != after.covers(pid, row);
        (moment, self.counts.read(epoch, |task, row| changes(task.pid, row)))
    }

    /// Begins to see the functions that are sampled, and to keep what is seen if `keep_all`. `None` while the links of
    /// the last burst are being removed.
    pub fn open_burst(&mut self, keep_all: bool) -> Option<u64> {
        if !self.probes.attach_burst(&mut self.calls, keep_all) {
            return None;
        }
        self.calls.open_burst(true);
        Some(monotonic_ns())
    }

    /// The end of a burst: when it was, and what every thread did in sampled functions since the last one.
    pub fn close_burst(&mut self) -> (u64, Vec<CountDelta>) {
        self.calls.open_burst(false);
        let moment = monotonic_ns();
        self.probes.remove_burst(&mut self.calls);
        let sampling = self.probes.sampling();
        let epoch = self.calls.epoch() - 1;
        (moment, self.counts.read(epoch, |task, row| sampling.covers(task.pid, row)))
    }

    /// The last counts of a thread that ended or runs another program now.
    pub fn close(&mut self, owner: Owner) -> Vec<CountDelta> {
        let epoch = self.calls.epoch();
        let mut counts = self.counts.close(owner, epoch);
        let sampling = self.probes.sampling();
        counts.retain(|delta| delta.count > 0 || sampling.covers(delta.task.pid, delta.row));
        counts
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
        let snapshots = bytes.chunks_exact(ThreadSnapshot::WIRE_SIZE).filter_map(ThreadSnapshot::decode);
        Ok(snapshots.map(|snapshot| self.without_cut_off(snapshot)).collect())
    }

    /// Nobody sees when a call ends whose link was removed meanwhile: it may be over.
    fn without_cut_off(&self, mut snapshot: ThreadSnapshot) -> ThreadSnapshot {
        let sees_return = |call: OpenCall| self.calls.sees_return(call.row, call.removals);
        snapshot.standing.take_if(|standing| !standing.call.is_none_or(sees_return));
        snapshot
    }

    /// What each process has asked of each block device so far.
    pub fn io_usage(&self) -> Vec<((Device, u32), IoSums)> {
        let Some(map) = self.families.iter().find_map(|family| family.io_usage.as_ref()) else { return Vec::new() };
        let value = |key: &[u8]| map.lookup(key, MapFlags::ANY).ok().flatten();
        map.keys().filter_map(|key| io_entry(&key, &value(&key)?)).collect()
    }

    /// What the kernel side knows of how to walk stacks, to be filled by one thread.
    pub fn stack_tables(&self) -> Result<StackTables> {
        StackTables::new(&self.shared.stacks)
    }

    /// Lets every stack be told of again.
    pub fn forget_stacks(&self) {
        let seen = &self.shared.stacks.seen_stacks;
        for key in seen.keys() {
            // It may have been replaced by another meanwhile.
            let _ = seen.delete(&key);
        }
    }

    /// How the walks over stacks have ended so far.
    pub fn walk_counts(&self) -> Result<Vec<WalkCount>> {
        stacks::walk_counts(&self.shared.stacks.walk_counts)
    }

    /// How much of its time a thread may spend on stacks, at most.
    pub fn allow_stacks(&self, allowed: StackAllowance) -> Result<()> {
        let share = |part: f64| (part * f64::from(1 << 20)) as u32;
        let (allowance, take_all) = match allowed {
            StackAllowance::None => (0, false),
            StackAllowance::Share(part) => (share(part), false),
            StackAllowance::All => (0, true),
        };
        stacks::set_allowance(&self.shared.stacks.stack_settings, allowance, take_all)
    }

    /// What could not be kept, since the start.
    pub fn losses(&self) -> Result<Losses> {
        let mut losses = self.kernel_losses()?;
        for (reason, before) in self.losses_before.iter() {
            losses.set(reason, losses.get(reason) - before);
        }
        Ok(losses)
    }

    fn kernel_losses(&self) -> Result<Losses> {
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

    /// Takes all probes out for a while.
    pub fn suspend(&mut self) {
        self.calls.open_burst(false);
        self.probes.suspend(&mut self.calls);
    }

    /// Puts them back. Returns the moment from which on calls are seen again.
    pub fn resume(&mut self) -> u64 {
        self.probes.resume(&self.calls);
        monotonic_ns()
    }

    /// Takes all probes out. What was written before is still there to be drained.
    pub fn detach(&mut self) -> Result<()> {
        let learning = std::mem::take(&mut self.learning);
        self.probes.detach(self.yardstick.path, &mut self.calls, learning)
    }

    /// What is left once everything is detached.
    pub fn drain_all(&mut self) -> Vec<Record> {
        self.counts.expect_new();
        self.reader.drain_all()
    }
}

impl<File> Drop for Tracer<File> {
    /// The sampler alone has a link for each CPU. Where there can be no child, the kernel is waited for.
    fn drop(&mut self) {
        let links: Vec<Link> = self.families.iter_mut().flat_map(|family| family.links.drain(..)).collect();
        let _ = leave_to_child(links);
    }
}
