//! The thread that writes, and what waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};
use crossbeam_channel::{Receiver, Sender, unbounded};
use gpuwhy_capture::StackHash;
use gpuwhy_model::{Note, NoteKind, Stack};
use gpuwhy_store::StoreError;

use crate::live::Live;
use crate::pipeline::{Item, Pipeline};
use crate::session;
use crate::stacks::Sink;

/// Items that may wait before the writer counts as behind.
const MOST_WAITING: usize = 1 << 14;

enum Message {
    Batch(Vec<Item>),
    Meet(u32),
    Runtime(PathBuf),
    Note(Note),
}

pub struct Writing {
    messages: Sender<Message>,
    thread: JoinHandle<(Pipeline, Result<(), StoreError>)>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    failed: AtomicBool,
    forgot_stacks: AtomicBool,
    waiting: AtomicUsize,
}

impl Writing {
    pub fn start(pipeline: Pipeline) -> Self {
        let (messages, inbox) = unbounded();
        let state = Arc::new(State::default());
        let own_state = Arc::clone(&state);
        Self { messages, thread: thread::spawn(move || run(pipeline, &inbox, &own_state)), state }
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

    fn send(&self, message: Message) {
        // It listens until `finish`; should it have panicked, that is where it is told.
        let _ = self.messages.send(message);
    }

    /// Whether records should stay in the rings, where there is an end to them. What waits here is lost in a crash,
    /// and has to be written before a trace can stop.
    pub fn is_behind(&self) -> bool {
        self.state.waiting.load(Ordering::Relaxed) > MOST_WAITING
    }

    /// Whether the kernel side has to tell of stacks again, since this was last asked.
    pub fn has_forgotten_stacks(&self) -> bool {
        self.state.forgot_stacks.swap(false, Ordering::Relaxed)
    }

    /// Where resolved stacks go.
    pub fn stack_sink(&self) -> Box<dyn Sink> {
        Box::new(ToWriter { messages: self.messages.clone(), state: Arc::clone(&self.state) })
    }

    pub fn has_failed(&self) -> bool {
        self.state.failed.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, and closes the session.
    pub fn finish(self, reason: &str) -> Result<Live> {
        drop(self.messages);
        let (pipeline, result) = self.thread.join().map_err(|_| anyhow!("the writing thread panicked"))?;
        let reason = match &result {
            Ok(()) => reason.to_owned(),
            Err(error) => error.to_string(),
        };
        let closed = pipeline.finish(&reason, session::own_cpu_ns());
        result?;
        Ok(closed?)
    }
}

struct ToWriter {
    messages: Sender<Message>,
    state: Arc<State>,
}

impl Sink for ToWriter {
    fn stack(&self, hash: StackHash, stack: Stack) {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        // As in `Writing::send`.
        let _ = self.messages.send(Message::Batch(vec![Item::Stack(hash, stack)]));
    }

    fn kernel(&self, pid: u32, handle: u64, name: String) {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.messages.send(Message::Batch(vec![Item::Kernel { pid, handle, name }]));
    }

    fn note(&self, text: String) {
        let _ = self.messages.send(Message::Note(Note { kind: NoteKind::Stacks, text }));
    }
}

fn run(mut pipeline: Pipeline, inbox: &Receiver<Message>, state: &State) -> (Pipeline, Result<(), StoreError>) {
    let mut result = Ok(());
    for message in inbox {
        let items = if let Message::Batch(batch) = &message { batch.len() } else { 0 };
        result = match (result, message) {
            (Ok(()), Message::Batch(batch)) => pipeline.take(batch),
            (Ok(()), Message::Meet(pid)) => pipeline.meet(pid),
            (Ok(()), Message::Note(note)) => pipeline.note(&note),
            (result, Message::Runtime(path)) => {
                pipeline.add_runtime(path);
                result
            }
            (failure, Message::Batch(batch)) => {
                pipeline.give_up(&batch);
                failure
            }
            (failure, Message::Meet(_) | Message::Note(_)) => failure,
        };
        state.waiting.fetch_sub(items, Ordering::Relaxed);
        if pipeline.has_forgotten_stacks() {
            state.forgot_stacks.store(true, Ordering::Relaxed);
        }
        if let Err(error) = &result
            && !state.failed.swap(true, Ordering::Relaxed)
        {
            pipeline.tell(&format!("the trace ends here: {error}"));
        }
    }
    (pipeline, result)
}
