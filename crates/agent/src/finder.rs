//! The thread that finds files to attach. Reading `/proc` and libraries takes time that the draining of rings has not.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendError, Sender, TrySendError, bounded};
use gpuwhy_capture::{Bell, FileMapped};
use hashbrown::HashSet;

use crate::discovery::{Discovery, Found};
use crate::loader;
use crate::procfs::Procfs;

pub enum FromFinder {
    Found(Box<Found>),
    /// A process maps a file that is, or will be, attached.
    User(u32),
    /// A file that carries a CUDA runtime.
    Runtime(PathBuf),
    Note(String),
    /// A file need not be told of again.
    LookedAt(FileMapped),
    /// The first look at the host is complete.
    FirstLookDone,
}

/// Files that may wait to be looked at. The kernel stops telling of a file once it has been, so that they are few.
const MOST_WAITING: usize = 1024;

/// Processes that have mapped a file for which there was no room. Each is looked at as a whole.
type Missed = Arc<Mutex<HashSet<u32>>>;

/// Where the finder is told of files that processes map.
pub struct Requests {
    queue: Sender<FileMapped>,
    missed: Missed,
}

impl Requests {
    /// Never waits: the finder may itself be waiting for the caller.
    pub fn send(&self, mapped: FileMapped) {
        // Nobody listens any more when the finding thread has ended.
        if let Err(TrySendError::Full(mapped)) = self.queue.try_send(mapped) {
            self.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(mapped.pid);
        }
    }
}

/// Looks at these processes, at what the command that is to be started will use, and at what it is told of from then on,
/// until the other side is dropped.
pub fn start(procfs: Procfs, pids: Vec<u32>, command: Option<PathBuf>, bell: Bell) -> (Requests, Receiver<FromFinder>) {
    let (queue, inbox) = bounded(MOST_WAITING);
    let (outbox, found) = bounded(64);
    let missed = Missed::default();
    let finder = Finder {
        discovery: Discovery::new(procfs.clone()),
        procfs,
        inbox,
        missed: Arc::clone(&missed),
        outbox,
        bell,
        early: Vec::new(),
    };
    // A closed channel means that the trace is over.
    thread::spawn(move || finder.run(&pids, command).ok());
    (Requests { queue, missed }, found)
}

struct Finder {
    discovery: Discovery,
    procfs: Procfs,
    inbox: Receiver<FileMapped>,
    missed: Missed,
    outbox: Sender<FromFinder>,
    /// A file that is in use already cannot wait.
    bell: Bell,
    /// Files that were not mapped yet when they were looked for.
    early: Vec<Early>,
}

struct Early {
    mapped: FileMapped,
    again_at: Instant,
    looks: u32,
}

/// Twice as long after each look.
const LOOK_AGAIN: Duration = Duration::from_micros(500);
const MOST_LOOKS: u32 = 16;

type Sent = Result<(), SendError<FromFinder>>;

impl Finder {
    fn run(mut self, pids: &[u32], command: Option<PathBuf>) -> Sent {
        let mut ahead = loader::installed();
        ahead.extend(command.iter().flat_map(|command| loader::linked(command)));
        let mut first = self.discovery.look_ahead(&ahead);
        first.extend(self.discovery.scan(pids));
        self.send(first)?;
        self.outbox.send(FromFinder::FirstLookDone)?;
        loop {
            let next = self.early.iter().map(|early| early.again_at).min();
            let patience = next.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match self.inbox.recv_timeout(patience) {
                Ok(mapped) => self.look(mapped, 1)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = Instant::now();
            for early in self.early.extract_if(.., |early| early.again_at <= now).collect::<Vec<_>>() {
                self.look(early.mapped, early.looks + 1)?;
            }
            self.look_at_missed()?;
        }
    }

    fn look_at_missed(&mut self) -> Sent {
        let missed = std::mem::take(&mut *self.missed.lock().unwrap_or_else(PoisonError::into_inner));
        for pid in missed {
            let found = self.discovery.scan(&[pid]);
            self.send(found)?;
        }
        Ok(())
    }

    fn look(&mut self, mapped: FileMapped, looks: u32) -> Sent {
        let mut found = match self.discovery.mapped(mapped.pid, mapped.inode) {
            Some(found) => found,
            None if !self.procfs.has_memory(mapped.pid) => return Ok(()),
            None if looks < MOST_LOOKS => {
                let again_at = Instant::now() + LOOK_AGAIN * (1 << looks.min(5));
                self.early.push(Early { mapped, again_at, looks });
                return Ok(());
            }
            // Some file systems show another inode in the map than the kernel has.
            None => self.discovery.scan(&[mapped.pid]),
        };
        found.iter_mut().for_each(|found| found.mapped_ns = Some(mapped.at_ns));
        self.send(found)?;
        self.outbox.send(FromFinder::LookedAt(mapped))
    }

    fn send(&mut self, found: Vec<Found>) -> Sent {
        let is_urgent = !found.is_empty();
        let found = found.into_iter().map(|found| FromFinder::Found(Box::new(found)));
        let runtimes = self.discovery.runtimes.drain(..).map(FromFinder::Runtime);
        let users = self.discovery.users.drain(..).map(FromFinder::User);
        let unusable = self
            .discovery
            .unusable
            .drain(..)
            .map(|bad| FromFinder::Note(format!("process {}: {} {}", bad.pid, bad.name.display(), bad.why)));
        runtimes.chain(found).chain(users).chain(unusable).try_for_each(|message| self.outbox.send(message))?;
        if is_urgent {
            self.bell.ring();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_for_a_file_its_process_is_remembered() {
        let (queue, inbox) = bounded(1);
        let requests = Requests { queue, missed: Missed::default() };
        for pid in [1, 2, 3, 2] {
            let mut mapped = FileMapped::default();
            mapped.pid = pid;
            requests.send(mapped);
        }
        assert_eq!(inbox.try_iter().map(|mapped| mapped.pid).collect::<Vec<_>>(), [1]);
        assert_eq!(*requests.missed.lock().unwrap(), HashSet::from_iter([2, 3]));
    }
}
