//! Takes a trace: wires kernel, discovery, pipeline and store together, and runs until there is a reason to stop.
//!
//! This thread drains the kernel and attaches files. Others find files to attach, name what was drained, resolve stacks and
//! serve each sink. When those that name or write fall behind, the rings are left to fill and the kernel counts what it
//! drops.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossbeam_channel::Receiver;
use gpuwhy_apis::row;
use gpuwhy_capture::{RawCall, Record, RunningKernel, ThreadSnapshot, Tracer, capabilities, required_features};
use gpuwhy_model::{LifeKind, LossReason, NoteKind, SessionEnd, Totals};
use hashbrown::HashSet;

use crate::annotations::Listening;
use crate::clock::{self, Clock, Reading};
use crate::discovery::{FileId, Found};
use crate::finder::{self, FromFinder, Requests};
use crate::governor::{Governor, Second};
use crate::gpus::Gpus;
use crate::items::{Counted, Item, ThreadReport, Tick};
use crate::live::Watch;
use crate::memory::give_back_large_buffers;
use crate::naming::NamingThread;
use crate::options::TraceOptions;
use crate::pipeline::Pipeline;
use crate::processes::Processes;
use crate::procfs::Procfs;
use crate::samplers::Sampling;
use crate::session;
use crate::sinks::{Opening, SINKS, Stored};
use crate::stacks::{News, Stacks};
use crate::target::{Named, Target, exit_code};

/// Why a trace stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    DurationOver,
    Interrupted,
    CommandEnded(i32),
    TargetsGone,
}

impl Ended {
    fn as_str(self) -> &'static str {
        match self {
            Self::DurationOver => "duration over",
            Self::Interrupted => SessionEnd::INTERRUPTED,
            Self::CommandEnded(_) => "command ended",
            Self::TargetsGone => "targets gone",
        }
    }
}

pub struct Outcome {
    pub ended: Ended,
    pub totals: Totals,
    pub file: PathBuf,
}

/// What the user wants while a trace is taken.
#[derive(Default)]
pub struct Signals {
    pub stop: Arc<AtomicBool>,
    /// Take the probes out and stop this process, as Ctrl-Z does; they are put back when it is continued.
    pub suspend: Arc<AtomicBool>,
}

/// Takes a trace until its time is up, its targets are gone, or the user wants it to stop.
pub fn trace(options: &TraceOptions, watch: Box<dyn Watch>, signals: &Signals) -> Result<Outcome> {
    let features = required_features(&RunningKernel::look());
    let (required, others): (Vec<_>, Vec<_>) = capabilities(&features).into_iter().partition(|one| one.required);
    if let Some(problem) = required.into_iter().find_map(|one| one.found.err()) {
        return Err(problem.into());
    }
    give_back_large_buffers();
    let procfs = Procfs::default();
    let named = options.target.hold()?;
    let pids = options.target.with_descendants(&procfs);
    let mut tracer = Tracer::load(&options.for_capture(&pids))?;
    let gpus = Gpus::read("/proc".as_ref());
    let learns_devices = gpus.gpus.len() != 1;
    let mut naming = start_naming(options, &tracer, &procfs, gpus, watch)?;
    let stacks = Stacks::start(tracer.stack_tables()?, procfs.clone(), naming.stack_receiver());
    let users = if options.target.is_limited() { pids } else { options.target.among(&procfs) };
    let command = options.target.command.as_deref().and_then(|command| command.first()).map(PathBuf::from);
    let (requests, found) = finder::start(procfs.clone(), users, command, tracer.bell());
    let mut run = Run {
        governor: Governor::new(options.cost, options.keep_min_ns(), &tracer, Instant::now()),
        tracer: &mut tracer,
        naming: &mut naming,
        stacks: &stacks,
        requests,
        found,
        procfs,
        probes: 0,
        named,
        learns_devices,
        learning_until: None,
        named_kernels: HashSet::new(),
        sampling: Sampling::start("/".as_ref()),
        annotations: None,
    };
    run.governor.allow_stacks(run.tracer);
    run.listen(options.annotations.as_deref());
    run.attach_first()?;
    for problem in others.into_iter().filter_map(|one| one.found.err()) {
        run.naming.note(NoteKind::NotAttached, format!("{}; {}", problem.what, problem.hint));
    }
    for warning in run.tracer.warnings() {
        run.naming.note(NoteKind::NotAttached, warning);
    }
    run.naming.note(NoteKind::Attached, format!("tracing {} functions", run.probes));
    let child = run.start_command(&options.target);
    let ended = child.and_then(|child| run.until_ended(options.duration, child, signals));
    run.finish();
    stacks.finish()?;
    let totals = naming.finish(ended.as_ref().map_or("failed", |ended| ended.as_str()))?;
    Ok(Outcome { ended: ended?, totals, file: options.out.clone() })
}

fn start_naming(
    options: &TraceOptions,
    tracer: &Tracer<FileId>,
    procfs: &Procfs,
    gpus: Gpus,
    watch: Box<dyn Watch>,
) -> Result<NamingThread> {
    let now = Reading::now();
    let session = session::describe(now.unix_ns, tracer.yardstick, &tracer.calibration, options.cost.budget, &gpus);
    let stored = Arc::new(Stored::default());
    let mut opening = Opening { options, session: &session, watch: Some(watch), stored: Arc::clone(&stored) };
    let sinks = SINKS.iter().filter_map(|open| open(&mut opening).transpose()).collect::<Result<_>>()?;
    let pipeline = Pipeline::new(Clock::new(now), Processes::new(procfs.clone(), gpus, options.labels.clone()));
    Ok(NamingThread::start(pipeline, sinks, stored))
}

struct Run<'a> {
    tracer: &'a mut Tracer<FileId>,
    governor: Governor,
    naming: &'a mut NamingThread,
    stacks: &'a Stacks,
    requests: Requests,
    found: Receiver<FromFinder>,
    procfs: Procfs,
    probes: usize,
    /// Named processes that are still there.
    named: Vec<Named>,
    /// Where there is one GPU only, a thread's device needs no learning.
    learns_devices: bool,
    learning_until: Option<Instant>,
    /// Handles of launches whose kernel was asked for, with their process.
    named_kernels: HashSet<(u32, u64)>,
    sampling: Sampling,
    annotations: Option<Listening>,
}

/// How long to probe the functions that tell a running thread's device.
const LEARN_FOR: Duration = Duration::from_secs(1);
/// More than a program has, unless it makes new ones all the time.
const MOST_KERNELS: usize = 1 << 16;
/// How long records lie in the rings. Waking up costs more than reading a few of them does.
const DRAIN_EVERY: Duration = Duration::from_millis(40);
const DRAIN_FEW_EVERY: Duration = Duration::from_millis(100);
const FEW: usize = 1000;
const TICK_EVERY: Duration = Duration::from_secs(1);

impl Run<'_> {
    /// Attaches everything that is there before the command starts.
    fn attach_first(&mut self) -> Result<()> {
        loop {
            match self.found.recv().context("the finding thread ended")? {
                FromFinder::FirstLookDone => return Ok(()),
                other => self.handle(other),
            }
        }
    }

    /// A trace without annotations is still one.
    fn listen(&mut self, folder: Option<&Path>) {
        match folder.map(|folder| Listening::start(folder, self.procfs.clone())).transpose() {
            Ok(listening) => self.annotations = listening,
            Err(error) => self.naming.note(NoteKind::Other, format!("annotations are not taken: {error:#}")),
        }
    }

    fn handle(&mut self, message: FromFinder) {
        match message {
            FromFinder::Found(found) => self.attach(&found),
            FromFinder::User(pid) => {
                self.naming.meet(pid);
                self.stacks.tell(News::Process(pid));
            }
            FromFinder::Runtime(path) => self.naming.runtime(path),
            FromFinder::LookedAt(file) => {
                if let Err(error) = self.tracer.looked_at(&file) {
                    tracing::warn!("{error:#}");
                }
            }
            FromFinder::Note(text) => self.naming.note(NoteKind::NotAttached, text),
            FromFinder::FirstLookDone => {}
        }
    }

    fn attach(&mut self, found: &Found) {
        let name = found.name.display();
        let attached = match self.tracer.attach(found.file, &found.path(), &found.image) {
            Ok(Some(attached)) => attached,
            Ok(None) => return,
            Err(error) => {
                return self.naming.note(NoteKind::NotAttached, format!("{name} is not attached: {error:#}"));
            }
        };
        self.probes += attached.probes;
        if let Some(mapped_ns) = found.mapped_ns {
            let late_ms = clock::read(libc::CLOCK_MONOTONIC).saturating_sub(mapped_ns) as f64 / 1e6;
            let text =
                format!("{name} is seen from {late_ms:.1} ms after it was first loaded; earlier calls are missing");
            self.naming.note(NoteKind::NotAttached, text);
        }
        let library = found.image.library.unwrap_or_default();
        self.naming.note(NoteKind::Attached, format!("attached {name} ({library}, {} functions)", attached.probes));
        for (symbol, why) in attached.refused {
            self.naming.note(NoteKind::NotAttached, format!("not attached in {name}: {symbol}: {why}"));
        }
        if self.learns_devices {
            self.tracer.learn(&found.path(), &found.image);
            self.learning_until = Some(Instant::now() + LEARN_FOR);
        }
    }

    /// The kernel adds what the tracer forks to the targets, so that the command is one from its first instruction.
    fn start_command(&mut self, target: &Target) -> Result<Option<Child>> {
        if target.command.is_none() {
            return Ok(None);
        }
        self.tracer.add_target(std::process::id())?;
        let child = target.spawn();
        self.tracer.remove_target(std::process::id())?;
        child
    }

    fn until_ended(
        &mut self,
        duration: Option<Duration>,
        mut child: Option<Child>,
        signals: &Signals,
    ) -> Result<Ended> {
        let started = Instant::now();
        let mut next_tick = started + TICK_EVERY;
        loop {
            let now = Instant::now();
            let is_behind = self.naming.is_behind();
            let records = if is_behind { Vec::new() } else { self.tracer.drain() };
            let drain_again = if records.len() < FEW && !is_behind { DRAIN_FEW_EVERY } else { DRAIN_EVERY };
            self.take(records, now >= next_tick);
            if now >= next_tick {
                next_tick = now + TICK_EVERY;
            }
            self.write(|run| run.governor.turn(run.tracer));
            while let Ok(message) = self.found.try_recv() {
                self.handle(message);
            }
            if self.learning_until.take_if(|until| *until <= now).is_some() {
                self.tracer.stop_learning();
            }
            if signals.stop.load(Ordering::Relaxed) {
                return Ok(self.interrupted(child.as_mut()));
            }
            if signals.suspend.swap(false, Ordering::Relaxed) {
                self.suspend();
            }
            if self.naming.has_failed() {
                // Why is the sink's to say.
                return Ok(self.without_trace(child.as_mut(), &signals.stop));
            }
            if duration.is_some_and(|duration| started.elapsed() >= duration) {
                return Ok(Ended::DurationOver);
            }
            if let Some(status) = child.as_mut().and_then(|child| child.try_wait().transpose()) {
                return Ok(Ended::CommandEnded(exit_code(status.context("wait for the command")?)));
            }
            if self.has_lost_targets() {
                return Ok(Ended::TargetsGone);
            }
            let due = self.governor.due_at(self.tracer).saturating_duration_since(Instant::now());
            self.tracer.wait(drain_again.min(due));
        }
    }

    /// A tracer that is stopped cannot drain what calls would write. The scheduler's hooks stay, so that clocks stay right.
    fn suspend(&mut self) {
        self.write(|run| run.governor.suspend(run.tracer));
        self.tracer.suspend();
        let records = self.tracer.drain();
        self.take(records, true);
        self.naming.note(NoteKind::Suspended, "suspended; no call is seen until it is continued".to_owned());
        let since = Instant::now();
        // SAFETY: raising a signal has no preconditions; the process stops here until somebody continues it.
        unsafe { libc::raise(libc::SIGSTOP) };
        self.governor.resume(self.tracer.resume());
        self.naming.note(NoteKind::Suspended, format!("continued after {:.1} s", since.elapsed().as_secs_f64()));
    }

    /// The command gets the signal too, unless its terminal has already sent it, and a moment to end by itself.
    fn interrupted(&mut self, child: Option<&mut Child>) -> Ended {
        let Some(child) = child else { return Ended::Interrupted };
        let deadline = Instant::now() + Duration::from_millis(300);
        // SAFETY: the child has not been waited for, so its pid is still its own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        while Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                return Ended::CommandEnded(exit_code(status));
            }
            thread::sleep(DRAIN_EVERY);
        }
        Ended::Interrupted
    }

    /// The trace is over, but the user's command is not ours to end.
    fn without_trace(&mut self, child: Option<&mut Child>, stop: &AtomicBool) -> Ended {
        self.detach();
        let Some(child) = child else { return Ended::Interrupted };
        while !stop.load(Ordering::Relaxed) {
            if let Ok(Some(status)) = child.try_wait() {
                return Ended::CommandEnded(exit_code(status));
            }
            thread::sleep(DRAIN_EVERY);
        }
        self.interrupted(Some(child))
    }

    fn has_lost_targets(&mut self) -> bool {
        if self.named.is_empty() {
            return false;
        }
        self.named.retain(|process| !process.has_ended());
        self.named.is_empty()
    }

    /// Sends records on, each thread's or program's end with its last counts before it.
    fn take(&mut self, records: Vec<Record>, end_of_bucket: bool) {
        self.write(|run| {
            let mut items = Vec::with_capacity(records.len() + 2);
            for record in records {
                run.governor.look_at(&record);
                match record {
                    Record::ThreadExit(snapshot) => items.extend(run.thread_end(snapshot)),
                    Record::Stack(stack) => run.stacks.tell(News::Stack(stack)),
                    Record::Code(code) => run.stacks.tell(News::Code(code)),
                    record => {
                        items.extend(run.look_at(&record));
                        items.push(Item::Record(record));
                    }
                }
            }
            items.extend(run.sampled());
            if end_of_bucket {
                items.extend(run.end_bucket().inspect_err(|error| tracing::warn!("{error:#}")).unwrap_or_default());
            }
            items
        });
    }

    fn write(&mut self, items: impl FnOnce(&mut Self) -> Vec<Item>) {
        let items = items(self);
        if !items.is_empty() {
            self.naming.batch(items);
        }
    }

    fn thread_end(&mut self, snapshot: ThreadSnapshot) -> [Item; 2] {
        let counts = self.governor.owner_gone(self.tracer, snapshot.owner, snapshot.at_ns);
        let taken_ns = self.governor.thread_gone(&snapshot);
        [Item::Counts(counts), Item::ThreadEnd(ThreadReport { snapshot, taken_ns })]
    }

    /// What was measured since the last time.
    fn sampled(&self) -> Option<Item> {
        let samples = self.sampling.take();
        (!samples.is_empty()).then_some(Item::Samples(samples))
    }

    /// What has to be done about a record before it is written.
    fn look_at(&mut self, record: &Record) -> Option<Item> {
        match record {
            Record::Call(call) => self.name_kernel(call),
            Record::Thread(seen) if seen.cgroup_id.is_some() => self.stacks.tell(News::Process(seen.task.pid)),
            Record::Life(life) if life.kind == LifeKind::Exec => {
                self.stacks.tell(News::Gone(life.pid));
                return Some(Item::Counts(self.governor.owner_gone(self.tracer, life.left, life.at_ns)));
            }
            Record::Life(life) if life.kind == LifeKind::Exit => {
                self.stacks.tell(News::Gone(life.pid));
                self.governor.process_gone(life.pid);
            }
            Record::File(file) => {
                self.stacks.tell(News::Mapped(file.pid));
                self.requests.send(*file);
            }
            _ => {}
        }
        None
    }

    /// Asks once for the kernel behind each handle.
    fn name_kernel(&mut self, call: &RawCall) {
        let Some(handle) = call.handle else { return };
        let key = (call.task.pid, handle);
        let names_kernel = || row(call.row.into()).is_some_and(|row| row.meaning().is_kernel_launch());
        if self.named_kernels.contains(&key) || !names_kernel() {
            return;
        }
        if self.named_kernels.len() >= MOST_KERNELS {
            self.named_kernels.clear();
        }
        self.named_kernels.insert(key);
        self.stacks.tell(News::Launch { pid: call.task.pid, handle });
    }

    fn end_bucket(&mut self) -> Result<Vec<Item>> {
        let (counts, threads) = self.tracer.tick()?;
        let Second { taken_ns, usage, worst, news } = self.governor.second(self.tracer, &counts, &threads);
        if let Some(news) = news {
            self.naming.note(NoteKind::Other, news.to_owned());
        }
        let mut counts: Vec<Counted> = counts.into_iter().map(Counted::exactly).collect();
        for owner in self.tracer.suspects() {
            if !self.procfs.thread_exists(owner.task.pid, owner.task.tid) {
                let now_ns = Reading::now().monotonic_ns;
                counts.extend(self.governor.owner_gone(self.tracer, owner, now_ns));
            }
        }
        let report = |(snapshot, taken_ns)| ThreadReport { snapshot, taken_ns };
        let threads = threads.into_iter().zip(taken_ns).map(report).collect();
        let mut losses = self.tracer.losses()?;
        losses.set(LossReason::StacksMissed, self.stacks.missed());
        losses.set(LossReason::Refused, self.annotations.as_ref().map_or(0, Listening::refused));
        let io = self.tracer.io_usage();
        let walks = self.tracer.walk_counts()?;
        if self.naming.wants_stacks() {
            self.naming.forget_stacks();
            self.tracer.forget_stacks();
        }
        Ok(vec![
            Item::Counts(counts),
            Item::Annotations(self.annotations.as_ref().map(Listening::take).unwrap_or_default()),
            Item::Tick(Tick { threads, losses, probes: self.probes, io, usage, worst, walks }),
        ])
    }

    /// Takes the probes out, then the last records and counts.
    fn finish(mut self) {
        self.write(|run| run.governor.stop(run.tracer));
        self.detach();
        let records = self.tracer.drain_all();
        self.take(records, false);
        self.write(|run| run.governor.finish(run.tracer));
        self.take(Vec::new(), true);
    }

    fn detach(&mut self) {
        if let Err(error) = self.tracer.detach() {
            tracing::warn!("{error:#}");
        }
    }
}
