//! The thread that names what was drained and hands the rows to all sinks. It waits for none of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use crossbeam_channel::{Receiver, Sender, bounded};
use gpuwhy_capture::StackHash;
use gpuwhy_model::{LossReason, Losses, Note, NoteKind, Row, SessionEnd, Stack, Totals};

use crate::clock::Reading;
use crate::items::Item;
use crate::pipeline::Pipeline;
use crate::session;
use crate::sinks::{Backlog, Outlet, Sink, Stored};
use crate::stacks;

/// Items that may wait before this thread counts as behind.
const MOST_WAITING: usize = 1 << 14;
/// Messages that may wait. The next one waits for room, which comes: this thread waits for nobody.
const MOST_MESSAGES: usize = 1 << 10;

enum Message {
    Batch(Vec<Item>),
    Meet(u32),
    Runtime(PathBuf),
    Note(Note),
    ForgetStacks,
}

/// The handle of the thread.
pub struct NamingThread {
    messages: Sender<Message>,
    thread: JoinHandle<Naming>,
    state: Arc<State>,
    backlog: Backlog,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    /// A sink without which the trace is over has failed.
    failed: AtomicBool,
    wants_stacks: AtomicBool,
}

impl NamingThread {
    pub fn start(pipeline: Pipeline, sinks: Vec<Box<dyn Sink>>, stored: Arc<Stored>) -> Self {
        let (messages, inbox) = bounded(MOST_MESSAGES);
        let state = Arc::new(State::default());
        let outlets: Vec<Outlet> = sinks.into_iter().map(Outlet::start).collect();
        let backlog = Backlog::new(&outlets);
        let told = vec![Told::default(); outlets.len()];
        let naming = Naming { pipeline, outlets, told, stored, state: Arc::clone(&state) };
        Self { messages, thread: thread::spawn(move || naming.run(&inbox)), state, backlog }
    }

    pub fn batch(&self, items: Vec<Item>) {
        self.state.waiting.fetch_add(items.len(), Ordering::Relaxed);
        self.send(Message::Batch(items));
    }

    pub fn meet(&self, pid: u32) {
        self.send(Message::Meet(pid));
    }

    pub fn runtime(&self, path: PathBuf) {
        self.send(Message::Runtime(path));
    }

    pub fn note(&self, kind: NoteKind, text: String) {
        self.send(Message::Note(Note { kind, text }));
    }

    /// Stacks get new numbers from now on; the kernel side tells of them again.
    pub fn forget_stacks(&self) {
        self.send(Message::ForgetStacks);
    }

    fn send(&self, message: Message) {
        // It listens until `finish`; should it have panicked, that is where it is told.
        let _ = self.messages.send(message);
    }

    /// Whether records should stay in the rings, where there is an end to them. What waits here is lost in a crash,
    /// and has to be written before a trace can stop.
    pub fn is_behind(&self) -> bool {
        self.state.waiting.load(Ordering::Relaxed) > MOST_WAITING || self.backlog.is_to_wait_for()
    }

    /// Whether somebody needs the frames of stacks once more, since this was last asked.
    pub fn wants_stacks(&self) -> bool {
        self.state.wants_stacks.swap(false, Ordering::Relaxed)
    }

    /// Where resolved stacks go.
    pub fn stack_receiver(&self) -> Box<dyn stacks::Receiver> {
        Box::new(ToNaming { messages: self.messages.clone(), state: Arc::clone(&self.state) })
    }

    pub fn has_failed(&self) -> bool {
        self.state.failed.load(Ordering::Relaxed)
    }

    /// Waits until everything is named and taken, and ends the session.
    pub fn finish(self, reason: &str) -> Result<Totals> {
        drop(self.messages);
        let naming = self.thread.join().map_err(|_| anyhow!("the thread that names what was seen panicked"))?;
        naming.finish(reason)
    }
}

struct ToNaming {
    messages: Sender<Message>,
    state: Arc<State>,
}

impl ToNaming {
    fn send(&self, item: Item) {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        // As in `NamingThread::send`.
        let _ = self.messages.send(Message::Batch(vec![item]));
    }
}

impl stacks::Receiver for ToNaming {
    fn stack(&self, hash: StackHash, stack: Stack) {
        self.send(Item::Stack(hash, stack));
    }

    fn kernel(&self, pid: u32, handle: u64, name: String) {
        self.send(Item::Kernel { pid, handle, name });
    }

    fn note(&self, text: String) {
        let _ = self.messages.send(Message::Note(Note { kind: NoteKind::Stacks, text }));
    }
}

struct Naming {
    pipeline: Pipeline,
    outlets: Vec<Outlet>,
    /// What was said about each outlet.
    told: Vec<Told>,
    stored: Arc<Stored>,
    state: Arc<State>,
}

#[derive(Clone, Copy, Default)]
struct Told {
    has_losses: bool,
    has_ended: bool,
}

impl Naming {
    fn run(mut self, inbox: &Receiver<Message>) -> Self {
        self.give(self.pipeline.first_rows());
        for message in inbox {
            let items = if let Message::Batch(batch) = &message { batch.len() } else { 0 };
            let rows = match message {
                Message::Batch(batch) => self.pipeline.name(batch),
                Message::Meet(pid) => self.pipeline.meet(pid),
                Message::Note(note) => vec![now(note)],
                Message::ForgetStacks => self.pipeline.forget_stacks(),
                Message::Runtime(path) => {
                    self.pipeline.add_runtime(path);
                    Vec::new()
                }
            };
            self.give(rows);
            self.state.waiting.fetch_sub(items, Ordering::Relaxed);
            self.look_after_sinks();
        }
        self
    }

    fn give(&self, mut rows: Vec<Row>) {
        if rows.is_empty() {
            return;
        }
        for row in &mut rows {
            match row {
                Row::Losses(losses) => *losses = self.with_sinks(*losses),
                Row::Second(totals) => *totals = self.totals(std::mem::take(totals)),
                _ => {}
            }
        }
        let rows = Arc::new(rows);
        for outlet in &self.outlets {
            outlet.give(&rows);
        }
    }

    /// Says once of each sink that it misses rows, and once that it is over.
    fn look_after_sinks(&mut self) {
        let mut notes = Vec::new();
        for (outlet, told) in self.outlets.iter().zip(&mut self.told) {
            if outlet.wants_stacks() {
                self.state.wants_stacks.store(true, Ordering::Relaxed);
            }
            let state = outlet.state();
            if let Some(why) = state.ended.as_ref().filter(|_| !told.has_ended) {
                told.has_ended = true;
                notes.push(match outlet.is_essential() {
                    true => format!("the trace ends here: {why}"),
                    false => format!("{} ends here, the trace goes on: {why}", state.name),
                });
                self.state.failed.fetch_or(outlet.is_essential(), Ordering::Relaxed);
            }
            if state.lost_rows > 0 && !told.has_losses && !told.has_ended {
                told.has_losses = true;
                notes.push(format!("{} does not keep up and misses rows", state.name));
            }
        }
        if self.pipeline.has_many_stacks() {
            self.state.wants_stacks.store(true, Ordering::Relaxed);
        }
        if !notes.is_empty() {
            let note = |text| now(Note { kind: NoteKind::Other, text });
            self.give(notes.into_iter().map(note).collect());
        }
    }

    /// With what sinks have missed.
    fn with_sinks(&self, mut losses: Losses) -> Losses {
        let (files, others): (Vec<&Outlet>, Vec<&Outlet>) = self.outlets.iter().partition(|one| one.is_essential());
        let missed = files.iter().map(|file| file.lost_calls()).sum::<u64>();
        losses.set(LossReason::NotWritten, missed + self.stored.not_written.load(Ordering::Relaxed));
        losses.set(LossReason::NotDelivered, others.iter().map(|one| one.state().lost_rows).sum());
        losses
    }

    fn totals(&self, totals: Totals) -> Totals {
        Totals {
            stored: self.stored.calls.load(Ordering::Relaxed),
            losses: self.with_sinks(totals.losses),
            sinks: self.outlets.iter().map(Outlet::state).collect(),
            ..totals
        }
    }

    fn finish(mut self, reason: &str) -> Result<Totals> {
        let mut totals = self.totals(self.pipeline.totals());
        let end = SessionEnd {
            ended_ns: Reading::now().unix_ns,
            seen: totals.seen,
            losses: totals.losses,
            agent_cpu_ns: session::own_cpu_ns(),
            reason: reason.to_owned(),
        };
        let mut failure = Ok(());
        totals.losses.set(LossReason::NotDelivered, 0);
        for outlet in std::mem::take(&mut self.outlets) {
            let (is_essential, lost_calls) = (outlet.is_essential(), outlet.lost_calls());
            let (state, result) = outlet.finish(end.clone());
            match is_essential {
                true => {
                    let not_written = self.stored.not_written.load(Ordering::Relaxed) + lost_calls;
                    totals.losses.set(LossReason::NotWritten, not_written);
                    failure = result;
                }
                false => totals.losses.add(LossReason::NotDelivered, state.lost_rows),
            }
            totals.sinks.retain(|earlier| earlier.name != state.name);
            totals.sinks.push(state);
        }
        totals.stored = self.stored.calls.load(Ordering::Relaxed);
        failure.map(|()| totals)
    }
}

fn now(note: Note) -> Row {
    Row::Note { at_ns: Reading::now().unix_ns, note }
}
