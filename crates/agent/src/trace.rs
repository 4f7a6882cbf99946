//! Takes a trace: wires kernel, discovery, pipeline and store together, and runs until there is a reason to stop.
//!
//! Three threads: this one drains the kernel and attaches files, one finds files to attach, one writes. Between them
//! are bounded channels; when the writer falls behind, the rings fill and the kernel counts what it drops.

use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use crossbeam_channel::{Receiver, Sender, bounded};
use gpuwhy_capture::{AttachPath, Filter, Layers, Options, Record, Tracer, capabilities};
use gpuwhy_model::LifeKind;
use gpuwhy_store::{StoreError, Writer};

use crate::clock::{Clock, Reading};
use crate::discovery::{Discovery, FileId, Found};
use crate::gpus::Gpus;
use crate::live::{Live, Watch};
use crate::pipeline::{Item, Pipeline, Tick};
use crate::processes::Processes;
use crate::procfs::{Procfs, library_folders};
use crate::session;
use crate::target::{Target, exit_code};

#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    pub out: PathBuf,
    pub target: Target,
    pub duration: Option<Duration>,
    pub max_size: Option<u64>,
    pub layers: Layers,
    pub attach_path: Option<AttachPath>,
    pub ring_bytes: Option<usize>,
    /// Calls shorter than this are counted but get no row.
    pub keep_min: Duration,
}

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
            Self::Interrupted => "interrupted",
            Self::CommandEnded(_) => "command ended",
            Self::TargetsGone => "targets gone",
        }
    }
}

pub struct Outcome {
    pub ended: Ended,
    pub live: Live,
    pub file: PathBuf,
}

/// Takes a trace until its time is up, its targets are gone, or `stop` is set.
pub fn trace(options: &TraceOptions, watch: Box<dyn Watch>, stop: &AtomicBool) -> Result<Outcome> {
    if let Some(problem) = capabilities().into_iter().filter(|one| one.required).find_map(|one| one.found.err()) {
        return Err(problem.into());
    }
    let procfs = Procfs::default();
    let pids = options.target.with_descendants(&procfs)?;
    let mut tracer = Tracer::load(&capture_options(options, &pids))?;
    let pipeline = open_pipeline(options, &tracer, &procfs, watch)?;

    let (batches, writer) = start_writer(pipeline);
    let (requests, found) = start_discovery(procfs.clone(), &pids, options.target.is_limited());
    let mut run =
        Run { tracer: &mut tracer, batches, requests, found, procfs, probes: 0, targets: options.target.pids.clone() };
    run.attach_first()?;
    for warning in std::mem::take(&mut run.tracer.warnings) {
        run.note(warning);
    }
    run.note(format!("tracing {} functions", run.probes));
    let child = run.start_command(&options.target)?;
    let ended = run.until_ended(options.duration, child, || stop.load(Ordering::Relaxed) || writer.has_failed());
    run.finish();
    let live = writer.finish(ended.as_ref().map_or("failed", |ended| ended.as_str()))?;
    Ok(Outcome { ended: ended?, live, file: options.out.clone() })
}

fn capture_options(options: &TraceOptions, pids: &[u32]) -> Options {
    let defaults = Options::default();
    Options {
        filter: Filter { pids: pids.to_vec(), only_targets: options.target.is_limited(), uid: options.target.uid },
        layers: options.layers,
        path: options.attach_path,
        ring_bytes: options.ring_bytes.unwrap_or(defaults.ring_bytes),
        keep_min_ns: options.keep_min.as_nanos() as u64,
    }
}

fn open_pipeline(
    options: &TraceOptions,
    tracer: &Tracer<FileId>,
    procfs: &Procfs,
    watch: Box<dyn Watch>,
) -> Result<Pipeline> {
    let now = Reading::now();
    let gpus = Gpus::read("/proc".as_ref());
    let facts = session::describe(now.unix_ns, tracer.yardstick, &gpus);
    let writer = Writer::open(&options.out, &facts, &gpuwhy_store::Options { max_size: options.max_size })?;
    Ok(Pipeline::new(writer, Clock::new(now), Processes::new(procfs.clone(), gpus), watch)?)
}

/// What the writing thread is told.
enum ToWriter {
    Batch(Vec<Item>),
    Meet(u32),
    Note(String),
}

/// Batches that may wait for the writer.
const WAITING_BATCHES: usize = 64;

struct WriterThread {
    handle: JoinHandle<(Pipeline, Result<(), StoreError>)>,
    failed: Arc<AtomicBool>,
}

fn start_writer(mut pipeline: Pipeline) -> (Sender<ToWriter>, WriterThread) {
    let (sender, receiver) = bounded(WAITING_BATCHES);
    let failed = Arc::new(AtomicBool::new(false));
    let set_failed = Arc::clone(&failed);
    let handle = thread::spawn(move || {
        let mut result = Ok(());
        for message in receiver {
            result = match (result, message) {
                (Ok(()), ToWriter::Batch(batch)) => pipeline.take(batch),
                (Ok(()), ToWriter::Meet(pid)) => pipeline.meet(pid),
                (Ok(()), ToWriter::Note(text)) => pipeline.note(&text),
                (failure, ToWriter::Batch(batch)) => {
                    pipeline.give_up(&batch);
                    failure
                }
                (failure, ToWriter::Meet(_) | ToWriter::Note(_)) => failure,
            };
            set_failed.store(result.is_err(), Ordering::Relaxed);
        }
        (pipeline, result)
    });
    (sender, WriterThread { handle, failed })
}

impl WriterThread {
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn finish(self, reason: &str) -> Result<Live> {
        let (pipeline, result) = self.handle.join().map_err(|_| anyhow!("the writing thread panicked"))?;
        let reason = match &result {
            Ok(()) => reason.to_owned(),
            Err(error) => error.to_string(),
        };
        let closed = pipeline.finish(&reason, session::own_cpu_ns());
        result?;
        Ok(closed?)
    }
}

/// A process mapped a file with this inode.
struct Mapped {
    pid: u32,
    inode: u64,
}

enum FromDiscovery {
    Found(Box<Found>),
    /// A process maps a file that is, or will be, attached.
    User(u32),
    Note(String),
    /// The first look at the host is complete.
    FirstScanDone,
}

fn start_discovery(procfs: Procfs, pids: &[u32], limited: bool) -> (Sender<Mapped>, Receiver<FromDiscovery>) {
    let (requests, inbox) = bounded::<Mapped>(1024);
    let (outbox, found) = bounded(64);
    let pids = if limited { pids.to_vec() } else { procfs.pids() };
    thread::spawn(move || {
        let mut discovery = Discovery::new(procfs);
        let folders = library_folders(std::env::var("LD_LIBRARY_PATH").ok().as_deref());
        let mut first = discovery.installed(&folders);
        first.extend(discovery.scan(&pids));
        let send = |found: Vec<Found>, discovery: &mut Discovery| {
            let unusable = discovery
                .unusable
                .drain(..)
                .map(|bad| FromDiscovery::Note(format!("process {}: {} {}", bad.pid, bad.name.display(), bad.why)));
            let users = discovery.users.drain(..).map(FromDiscovery::User);
            let found = found.into_iter().map(|found| FromDiscovery::Found(Box::new(found)));
            found.chain(users).chain(unusable).try_for_each(|message| outbox.send(message))
        };
        // A closed channel means that the trace is over.
        if send(first, &mut discovery).is_err() || outbox.send(FromDiscovery::FirstScanDone).is_err() {
            return;
        }
        for Mapped { pid, inode } in inbox {
            let found = discovery.mapped(pid, inode);
            if send(found, &mut discovery).is_err() {
                return;
            }
        }
    });
    (requests, found)
}

struct Run<'a> {
    tracer: &'a mut Tracer<FileId>,
    batches: Sender<ToWriter>,
    requests: Sender<Mapped>,
    found: Receiver<FromDiscovery>,
    procfs: Procfs,
    probes: usize,
    /// Named processes that are still there.
    targets: Vec<u32>,
}

const DRAIN_EVERY: Duration = Duration::from_millis(10);
const TICK_EVERY: Duration = Duration::from_secs(1);

impl Run<'_> {
    fn note(&self, text: String) {
        // The receiver outlives every sender.
        let _ = self.batches.send(ToWriter::Note(text));
    }

    /// Attaches everything that is there before the command starts.
    fn attach_first(&mut self) -> Result<()> {
        loop {
            match self.found.recv().context("the discovery thread ended")? {
                FromDiscovery::FirstScanDone => return Ok(()),
                other => self.handle(other),
            }
        }
    }

    fn handle(&mut self, message: FromDiscovery) {
        match message {
            FromDiscovery::Found(found) => self.attach(&found),
            FromDiscovery::User(pid) => {
                let _ = self.batches.send(ToWriter::Meet(pid));
            }
            FromDiscovery::Note(text) => self.note(text),
            FromDiscovery::FirstScanDone => {}
        }
    }

    fn attach(&mut self, found: &Found) {
        let Some(attached) = self.tracer.attach(found.file, &found.path, &found.image) else { return };
        self.probes += attached.probes;
        let refused: Vec<String> = attached.refused.iter().map(|(symbol, why)| format!("{symbol}: {why}")).collect();
        let library = found.image.library.unwrap_or_default();
        let text = format!("attached {} ({library}, {} functions)", found.name.display(), attached.probes);
        self.note(text);
        for refusal in refused {
            self.note(format!("not attached in {}: {refusal}", found.name.display()));
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
        must_stop: impl Fn() -> bool,
    ) -> Result<Ended> {
        let started = Instant::now();
        let mut next_tick = started + TICK_EVERY;
        loop {
            let now = Instant::now();
            let records = self.tracer.drain();
            self.take(records, now >= next_tick);
            if now >= next_tick {
                next_tick = now + TICK_EVERY;
            }
            while let Ok(message) = self.found.try_recv() {
                self.handle(message);
            }
            if must_stop() {
                return Ok(self.interrupted(child.as_mut()));
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
            self.tracer.wait(DRAIN_EVERY);
        }
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

    fn has_lost_targets(&mut self) -> bool {
        if self.targets.is_empty() {
            return false;
        }
        self.targets.retain(|&pid| self.procfs.exists(pid));
        self.targets.is_empty()
    }

    /// Sends records on, each thread's or program's end with its last counts before it.
    fn take(&mut self, records: Vec<Record>, end_of_bucket: bool) {
        let mut items = Vec::with_capacity(records.len() + 2);
        for record in records {
            match &record {
                Record::ThreadExit(snapshot) => items.push(Item::Counts(self.tracer.close(snapshot.owner))),
                Record::Life(life) if life.kind == LifeKind::Exec => {
                    items.push(Item::Counts(self.tracer.close(life.left)));
                }
                Record::File(file) => {
                    // A full inbox loses nothing for long: the next new file of any process leads to the same look.
                    let _ = self.requests.try_send(Mapped { pid: file.pid, inode: file.inode });
                }
                _ => {}
            }
            items.push(Item::Record(record));
        }
        if end_of_bucket {
            items.extend(self.end_bucket().inspect_err(|error| tracing::warn!("{error:#}")).unwrap_or_default());
        }
        if !items.is_empty() {
            let _ = self.batches.send(ToWriter::Batch(items));
        }
    }

    fn end_bucket(&mut self) -> Result<Vec<Item>> {
        let (mut counts, threads) = self.tracer.tick()?;
        for owner in self.tracer.suspects() {
            if !self.procfs.thread_exists(owner.task.pid, owner.task.tid) {
                counts.extend(self.tracer.close(owner));
            }
        }
        let losses = self.tracer.losses()?;
        Ok(vec![Item::Counts(counts), Item::Tick(Tick { threads, losses, probes: self.probes })])
    }

    /// Takes the probes out, then the last records and counts.
    fn finish(mut self) {
        if let Err(error) = self.tracer.detach() {
            tracing::warn!("{error:#}");
        }
        let records = self.tracer.drain_all();
        self.take(records, true);
    }
}
