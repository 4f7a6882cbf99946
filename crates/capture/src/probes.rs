//! Which functions of which files are probed right now: always, in bursts, or for single processes.
//!
//! Links come and go while programs run. The kernel side ignores a link that is not due (`is_due` in `calls.bpf.c`), so
//! that what counts from when is decided by one store to its memory, and links are attached before it and removed
//! after it. Removing a link takes the kernel tens of milliseconds, which is left to threads of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::hash::Hash;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use gpuwhy_apis::row as row_at;

use crate::attach::{AttachPath, Attached, LinkKind, leave_to_child};
use crate::families::calls::{Calls, RowMode};
use crate::image::Probe;

/// What is seen of functions that are called too often to see every call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// Functions that are seen in bursts.
    pub rows: BTreeMap<u16, InBursts>,
    /// Processes that have every call of such a function seen all the same.
    pub exempt: BTreeSet<(u32, u16)>,
}

impl Sampling {
    /// Whether calls of this function in this process are seen in bursts only.
    pub fn covers(&self, pid: u32, row: u16) -> bool {
        self.rows.contains_key(&row) && !self.exempt.contains(&(pid, row))
    }
}

/// What becomes of a call that is made while a burst is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBursts {
    /// As at any other time.
    Kept,
    /// It is counted, and gets no record.
    Counted,
}

/// Processes that can have links of their own, which is a bound on links and not on what is needed.
pub const MOST_EXEMPT: usize = 64;

struct ProbedFile {
    /// Held open: whoever led to the file may be gone when it is probed again.
    held: File,
    probes: Vec<Probe>,
    /// Functions that have a link to themselves.
    alone: BTreeMap<u16, Attached>,
    /// All others have one together: when a tracer is killed, the kernel removes its links one after the other.
    together: Attached,
    own: HashMap<(u32, u16), Attached>,
}

impl ProbedFile {
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.held.as_raw_fd()).into()
    }

    fn probes_of(&self, wanted: impl Fn(u16) -> bool) -> Vec<Probe> {
        self.probes.iter().filter(|probe| wanted(probe.row as u16)).cloned().collect()
    }
}

/// `Name` is the caller's name for a file.
pub struct Probes<Name> {
    files: HashMap<Name, ProbedFile>,
    sampling: Sampling,
    /// Functions that were taken out of the link they shared.
    alone: BTreeSet<u16>,
    /// Functions with a probe that the kernel has to single-step; asked for each counter again and again.
    stepped: BTreeSet<u16>,
    burst: Option<Vec<Attached>>,
    /// Links that are being removed, and those of a burst, of which there may not be two.
    removals: Vec<JoinHandle<()>>,
    burst_removal: Option<JoinHandle<()>>,
}

/// What became of the functions of a file.
#[derive(Debug, Default)]
pub struct AttachReport {
    pub probes: usize,
    /// Functions the kernel refused to probe, with its reason.
    pub refused: Vec<(String, String)>,
}

impl AttachReport {
    fn add(&mut self, attached: &Attached) {
        self.probes += attached.probes;
        self.refused.extend(attached.refused.iter().cloned());
    }
}

impl<Name> Default for Probes<Name> {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            sampling: Sampling::default(),
            alone: BTreeSet::new(),
            stepped: BTreeSet::new(),
            burst: None,
            removals: Vec::new(),
            burst_removal: None,
        }
    }
}

impl<Name: Eq + Hash> Probes<Name> {
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Whether the kernel has to single-step a probe of this function, see [`Probe::emulated`].
    pub fn is_stepped(&self, row: u16) -> bool {
        self.stepped.contains(&row)
    }

    /// Probes a file; functions that are seen in bursts join the next one.
    pub fn add(&mut self, name: Name, path: &Path, probes: Vec<Probe>, calls: &Calls) -> Result<AttachReport> {
        let held = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let mut file =
            ProbedFile { held, probes, alone: BTreeMap::new(), together: Attached::default(), own: HashMap::new() };
        attach_file(&mut file, &self.alone, &self.sampling, calls);
        self.stepped.extend(file.probes.iter().filter(|probe| !probe.emulated).map(|probe| probe.row as u16));
        let mut report = AttachReport::default();
        file.alone.values().chain([&file.together]).for_each(|attached| report.add(attached));
        report.probes += file.probes_of(|row| self.sampling.rows.contains_key(&row)).len();
        self.files.insert(name, file);
        Ok(report)
    }

    /// Changes what is seen in bursts; not while one is open. `at_the_moment` runs when the change takes effect.
    pub fn sample<T>(&mut self, wanted: Sampling, calls: &mut Calls, at_the_moment: impl FnOnce() -> T) -> T {
        debug_assert!(self.burst.is_none());
        let before = std::mem::replace(&mut self.sampling, wanted);
        self.take_out(calls);
        let lifted: Vec<u16> =
            before.rows.keys().copied().filter(|row| !self.sampling.rows.contains_key(row)).collect();
        if !lifted.is_empty() {
            // A link that was there before could see calls a second time.
            self.wait_for_removals();
        }
        for file in self.files.values_mut() {
            for &row in &lifted {
                let attached = attach_always(file, |other| other == row, calls);
                file.alone.insert(row, attached);
            }
        }
        self.drop_exemptions(&before, calls);
        self.attach_exemptions(&before, calls);
        for &row in before.rows.keys().chain(self.sampling.rows.keys()) {
            calls.removes_links(row);
            calls.set_mode(row, mode_of(self.sampling.rows.get(&row)));
        }
        let moment = at_the_moment();
        self.remove_what_is_not_due(calls);
        moment
    }

    /// Takes functions that are to be seen in bursts out of the link that they share with others: one without them
    /// takes its place.
    fn take_out(&mut self, calls: &mut Calls) {
        let stays = |row: u16, alone: &BTreeSet<u16>| !is_alone(row, alone, calls);
        let leaving: Vec<u16> = self.sampling.rows.keys().copied().filter(|&row| stays(row, &self.alone)).collect();
        if leaving.is_empty() {
            return;
        }
        let rows = self.files.values().flat_map(|file| &file.probes).map(|probe| probe.row as u16);
        let staying: BTreeSet<u16> = rows.filter(|row| stays(*row, &self.alone) && !leaving.contains(row)).collect();
        let generations: Vec<u8> = calls.generations().iter().map(|generation| generation.wrapping_add(1)).collect();
        let attach = |file: &ProbedFile| {
            let probes = file.probes_of(|row| staying.contains(&row));
            Attached::attach(&calls.programs(), &file.path(), &probes, LinkKind::Always(&generations))
        };
        let next: Vec<Attached> = self.files.values().map(attach).collect();
        for &row in &staying {
            calls.removes_links(row);
            calls.next_generation(row);
        }
        let old = self.files.values_mut().zip(next).map(|(file, next)| std::mem::replace(&mut file.together, next));
        let old: Vec<Attached> = old.collect();
        self.removals.push(thread::spawn(|| remove_all(old)));
        self.alone.extend(leaving);
    }

    /// A process that is to be seen in bursts again: its own link would count calls a second time.
    fn drop_exemptions(&mut self, before: &Sampling, calls: &mut Calls) {
        let dropped =
            before.exempt.difference(&self.sampling.exempt).filter(|(_, row)| self.sampling.rows.contains_key(row));
        for &(pid, row) in dropped {
            for file in self.files.values_mut() {
                file.own.remove(&(pid, row));
            }
            calls.removes_links(row);
            calls.set_own_link(pid, row, false);
        }
    }

    fn attach_exemptions(&mut self, before: &Sampling, calls: &mut Calls) {
        for &(pid, row) in self.sampling.exempt.difference(&before.exempt) {
            calls.set_own_link(pid, row, true);
            for file in self.files.values_mut() {
                let attached = attach_own(file, pid, row, calls);
                file.own.insert((pid, row), attached);
            }
        }
    }

    fn remove_what_is_not_due(&mut self, calls: &mut Calls) {
        let sampling = &self.sampling;
        let mut links = Vec::new();
        for file in self.files.values_mut() {
            let sampled = file.alone.extract_if(.., |row, _| sampling.rows.contains_key(row));
            links.extend(sampled.map(|(_, attached)| attached));
            for ((pid, row), attached) in file.own.extract_if(|key, _| !sampling.exempt.contains(key)) {
                links.push(attached);
                calls.set_own_link(pid, row, false);
            }
        }
        self.remove_meanwhile(links);
    }

    /// Takes links out while the caller goes on: on a crowded machine the kernel takes seconds.
    pub fn remove_meanwhile(&mut self, links: Vec<Attached>) {
        self.removals.retain(|removal| !removal.is_finished());
        self.removals.push(thread::spawn(|| remove_all(links)));
    }

    /// Puts the links of a burst in place; its functions are seen once it is open. Not while the links of the last
    /// burst are there, through which calls would be seen a second time.
    pub fn attach_burst(&mut self, calls: &mut Calls, keep_all: bool) -> bool {
        if self.burst.is_some() || self.burst_removal.as_ref().is_some_and(|removal| !removal.is_finished()) {
            return false;
        }
        for (&row, in_bursts) in &self.sampling.rows {
            calls.set_mode(row, mode_of(Some(if keep_all { &InBursts::Kept } else { in_bursts })));
        }
        let attach = |file: &ProbedFile| {
            let probes = file.probes_of(|row| self.sampling.rows.contains_key(&row));
            Attached::attach(&calls.programs(), &file.path(), &probes, LinkKind::Burst)
        };
        let links: Vec<Attached> = self.files.values().map(attach).collect();
        // What the kernel refuses now it may take later. Nobody is to believe that these functions were watched.
        let is_refused = links.iter().any(|attached| attached.probes == 0 && !attached.refused.is_empty());
        self.burst = Some(links);
        if is_refused {
            self.remove_burst(calls);
        }
        !is_refused
    }

    pub fn remove_burst(&mut self, calls: &mut Calls) {
        let Some(links) = self.burst.take() else { return };
        for &row in self.sampling.rows.keys() {
            calls.removes_links(row);
        }
        self.burst_removal = Some(thread::spawn(|| remove_all(links)));
    }

    /// Takes all links out for a while, and waits until they are gone.
    pub fn suspend(&mut self, calls: &mut Calls) {
        let mut links: Vec<Attached> = self.burst.take().into_iter().flatten().collect();
        for file in self.files.values_mut() {
            links.push(std::mem::take(&mut file.together));
            links.extend(std::mem::take(&mut file.alone).into_values());
            links.extend(file.own.drain().map(|(_, attached)| attached));
        }
        self.each_row(|row| calls.removes_links(row));
        remove_all(links);
        self.wait_for_removals();
    }

    /// Puts them back.
    pub fn resume(&mut self, calls: &Calls) {
        let (alone, sampling) = (&self.alone, &self.sampling);
        for file in self.files.values_mut() {
            attach_file(file, alone, sampling, calls);
            for &(pid, row) in &sampling.exempt {
                file.own.insert((pid, row), attach_own(file, pid, row, calls));
            }
        }
    }

    fn each_row(&self, mut what: impl FnMut(u16)) {
        let rows = self.files.values().flat_map(|file| &file.probes).map(|probe| probe.row as u16);
        rows.collect::<BTreeSet<u16>>().into_iter().for_each(&mut what);
    }

    fn wait_for_removals(&mut self) {
        for removal in self.removals.drain(..).chain(self.burst_removal.take()) {
            // A thread that only closes descriptors has nothing to tell.
            let _ = removal.join();
        }
    }

    /// Takes everything out, `more` links with it.
    pub fn detach(&mut self, path: AttachPath, calls: &mut Calls, more: Vec<Attached>) -> Result<()> {
        let files = self.files.drain().map(|(_, file)| file);
        let links =
            files.flat_map(|file| file.alone.into_values().chain(file.own.into_values()).chain([file.together]));
        let links: Vec<Attached> = links.chain(self.burst.take().into_iter().flatten()).chain(more).collect();
        if path == AttachPath::Single {
            calls.pause();
            return leave_to_child(links).context("leave the removal of probes to a child");
        }
        remove_all(links);
        self.wait_for_removals();
        Ok(())
    }
}

/// Launches can become too many in any program. Where each probe is a link, there is nothing to share.
fn is_alone(row: u16, alone: &BTreeSet<u16>, calls: &Calls) -> bool {
    let launches = row_at(row.into()).is_some_and(|row| row.meaning().is_kernel_launch());
    launches || alone.contains(&row) || calls.path() == AttachPath::Single
}

/// Probes a file as it is due; functions that are seen in bursts join the next one.
fn attach_file(file: &mut ProbedFile, alone: &BTreeSet<u16>, sampling: &Sampling, calls: &Calls) {
    let rows: BTreeSet<u16> = file.probes.iter().map(|probe| probe.row as u16).collect();
    for row in rows.into_iter().filter(|row| !sampling.rows.contains_key(row) && is_alone(*row, alone, calls)) {
        let attached = attach_always(file, |other| other == row, calls);
        file.alone.insert(row, attached);
    }
    file.together = attach_always(file, |row| !is_alone(row, alone, calls), calls);
}

fn attach_own(file: &ProbedFile, pid: u32, row: u16, calls: &Calls) -> Attached {
    let probes = file.probes_of(|other| other == row);
    Attached::attach(&calls.programs(), &file.path(), &probes, LinkKind::OneProcess(pid))
}

/// Probes functions of a file all the time.
fn attach_always(file: &ProbedFile, wanted: impl Fn(u16) -> bool, calls: &Calls) -> Attached {
    let kind = LinkKind::Always(&calls.generations());
    Attached::attach(&calls.programs(), &file.path(), &file.probes_of(wanted), kind)
}

fn mode_of(in_bursts: Option<&InBursts>) -> RowMode {
    match in_bursts {
        None => RowMode::ROW_ALWAYS,
        Some(InBursts::Kept) => RowMode::ROW_IN_BURSTS,
        Some(InBursts::Counted) => RowMode::ROW_COUNTED_IN_BURSTS,
    }
}

/// All at once: each removal waits for the kernel, and they can wait together.
fn remove_all(links: Vec<Attached>) {
    thread::scope(|scope| {
        for attached in links {
            scope.spawn(move || drop(attached));
        }
    });
}
