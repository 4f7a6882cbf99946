//! Stacks, from what the kernel side needs to walk them to the lines that people read.
//!
//! One thread tells the kernel side what processes map and what their code's unwind tables are, reads Python's code objects
//! while they are there, and looks up names. Another compiles tables, which can take seconds for a large file. Until a
//! table is ready, frame pointers have to do.

mod background;
mod files;
mod interpreter;
mod kernels;
mod numbers;
mod process;
mod python;
mod resolve;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use crossbeam_channel::{self as channel, Sender, bounded, select, tick};
use gpuwhy_capture::{RawCode, RawStack, StackHash, StackTables};
use gpuwhy_model::{Stack, WalkEnd};
use gpuwhy_stacks::symbols::{Limits, Symbolizer};
use hashbrown::HashMap;

use crate::procfs::Procfs;
pub use background::background_cpu_ns;
use background::{Background, Urgency};
use files::{Built, Files};
pub use interpreter::{Refused, find_python_state, look_for_interpreter};
pub use numbers::StackNumbers;
use process::{Place, Walked};
use resolve::Resolver;

/// What the draining thread has to tell.
pub enum News {
    /// A process that makes traced calls.
    Process(u32),
    /// It ended, or runs another program.
    Gone(u32),
    /// It maps another file as code.
    Mapped(u32),
    Stack(RawStack),
    Code(RawCode),
    /// A launch with a handle that was not seen before.
    Launch {
        pid: u32,
        handle: u64,
    },
}

/// Where resolved stacks and remarks go.
pub trait Receiver: Send {
    fn stack(&self, hash: StackHash, stack: Stack);
    /// Which kernel a process's launches with this handle launch.
    fn kernel(&self, pid: u32, handle: u64, name: String);
    fn note(&self, text: String);
}

/// The handle of the thread.
pub struct Stacks {
    news: Sender<News>,
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// There is no time left for names.
    hurry: AtomicBool,
    urgency: Urgency,
    missed: AtomicU64,
}

/// Stacks that may wait to be resolved.
const MOST_WAITING: usize = 4096;
/// What a stop may still take.
const LAST_NAMES: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// To read a file's debug information again takes a tenth of a second, so that it is not given back at once.
const TRIM_EVERY: Duration = Duration::from_secs(10);

impl Stacks {
    pub fn start(tables: StackTables, procfs: Procfs, receiver: Box<dyn Receiver>) -> Self {
        let (news, inbox) = bounded(MOST_WAITING);
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = thread::spawn(move || Work::new(tables, procfs, receiver, own).run(&inbox));
        Self { news, thread, shared }
    }

    /// Never waits: what does not fit is counted.
    pub fn tell(&self, news: News) {
        if self.news.try_send(news).is_err() {
            self.shared.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// News that nobody had time for.
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }

    /// Waits until everything that was told is resolved, without names if that takes too long.
    pub fn finish(self) -> Result<()> {
        drop(self.news);
        self.shared.urgency.raise();
        let deadline = Instant::now() + LAST_NAMES;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.shared.hurry.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that resolves stacks panicked"))
    }
}

struct Work {
    tables: StackTables,
    files: Files,
    built: channel::Receiver<Built>,
    processes: HashMap<u32, Walked>,
    resolver: Resolver,
    procfs: Procfs,
    receiver: Box<dyn Receiver>,
    shared: Arc<Shared>,
    identities: u32,
    trimmed_at: Instant,
}

impl Work {
    fn new(tables: StackTables, procfs: Procfs, receiver: Box<dyn Receiver>, shared: Arc<Shared>) -> Self {
        let (files, built) = Files::start();
        let resolver = Resolver::new(Symbolizer::new(Limits::default()));
        Self {
            tables,
            files,
            built,
            processes: HashMap::new(),
            resolver,
            procfs,
            receiver,
            shared,
            identities: 0,
            trimmed_at: Instant::now(),
        }
    }

    fn run(mut self, inbox: &channel::Receiver<News>) {
        let look = tick(LOOK_EVERY);
        let mut background = Background::begin();
        self.shared.urgency.is_mine();
        loop {
            select! {
                recv(inbox) -> news => match news {
                    Ok(news) => self.take(news),
                    Err(_) => return,
                },
                recv(self.built) -> built => {
                    if let Ok(built) = built {
                        self.table_ready(built);
                    }
                }
                recv(look) -> _ => self.look_again(),
            }
            background.note();
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Process(pid) => self.meet(pid),
            News::Gone(pid) => self.forget(pid),
            News::Mapped(pid) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.is_stale = true;
                }
            }
            News::Stack(raw) => self.stack(&raw),
            News::Launch { pid, handle } => self.launch(pid, handle),
            News::Code(raw) => {
                if let Some(process) = self.processes.get_mut(&raw.pid) {
                    process.learn_code(&raw);
                }
            }
        }
    }

    fn meet(&mut self, pid: u32) {
        if !self.processes.contains_key(&pid) && self.procfs.exists(pid) {
            self.identities += 1;
            self.processes.insert(pid, Walked::new(self.identities));
            self.read_process(pid);
        }
    }

    /// Reads what a process maps, and lets the kernel side know.
    fn read_process(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.read_code(pid, &self.procfs, &mut self.files);
        if let Some(note) = process.find_python(pid, &mut self.files) {
            self.receiver.note(note);
        }
        self.publish(pid);
    }

    fn publish(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let mappings = process.mappings(&self.files);
        if !process.has_news(&mappings) {
            return;
        }
        let python = process.python.as_ref().map(python::for_kernel);
        if let Err(error) = self.tables.set_process(pid, process.identity, &mappings, python.as_ref()) {
            tracing::warn!("stacks of process {pid}: {error:#}");
        }
    }

    fn table_ready(&mut self, built: Built) {
        let file = built.file;
        if let Some(problem) = self.files.install(built, &mut self.tables) {
            self.receiver.note(problem);
        }
        let users: Vec<u32> =
            self.processes.iter().filter(|(_, process)| process.maps(file)).map(|(&pid, _)| pid).collect();
        for pid in users {
            self.publish(pid);
            if self.processes.get(&pid).is_some_and(|process| process.is_ready(&self.files)) {
                tracing::info!("process {pid} has all its unwind tables");
            }
        }
    }

    fn stack(&mut self, raw: &RawStack) {
        let pid = raw.task.pid;
        // The kernel side asks for a process, or for code that it does not know, by failing once.
        self.meet(pid);
        if raw.end == WalkEnd::NoMapping
            && let Some(process) = self.processes.get_mut(&pid)
        {
            process.is_stale = true;
        }
        let hurry = self.shared.hurry.load(Ordering::Relaxed);
        let process = self.processes.get_mut(&pid).filter(|process| process.identity == raw.identity);
        if let Some(process) = &process {
            process.want_files(&raw.native, &mut self.files, &mut self.resolver.symbols);
        }
        let stack = self.resolver.stack(raw, process, &self.files, hurry);
        self.receiver.stack(raw.hash, stack);
    }

    fn launch(&mut self, pid: u32, handle: u64) {
        self.meet(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let name = match process.place(handle) {
            Place::File(file, address) => {
                self.files.want(file, &mut self.resolver.symbols);
                self.resolver.function(file, address, &self.files)
            }
            Place::Jit | Place::Unknown => process.kernels.driver_name(pid, handle),
        };
        if let Some(name) = name {
            self.receiver.kernel(pid, handle, name);
        }
    }

    /// Reads again what has changed, but not all the time.
    fn look_again(&mut self) {
        let due: Vec<u32> =
            self.processes.iter().filter(|(_, process)| process.is_due()).map(|(&pid, _)| pid).collect();
        for pid in due {
            if self.procfs.exists(pid) {
                self.read_process(pid);
            } else if self.processes.get_mut(&pid).is_some_and(Walked::is_long_gone) {
                self.forget(pid);
            }
        }
        if self.trimmed_at.elapsed() >= TRIM_EVERY {
            self.trimmed_at = Instant::now();
            self.resolver.symbols.trim();
        }
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.tables.remove_process(pid);
    }
}
