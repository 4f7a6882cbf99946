//! Brings what is new into the files, now and then, and at the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpuwhy_fleet::Rates;

use crate::error::HistoryError;
use crate::file::ClusterFile;
use crate::folder::{Folder, file_of};
use crate::gathered::Gathered;
use crate::journal::Journal;

/// How often.
const EVERY: Duration = Duration::from_secs(10);
/// The journal may take so much of the size.
const JOURNAL_PART: u64 = 4;
/// A history of less forgets within minutes.
const LEAST_SIZE: u64 = 64 << 20;

/// Writes the files. There is one for a folder.
pub struct Keeper {
    folder: Folder,
    files: BTreeMap<String, ClusterFile>,
    most_bytes: u64,
}

/// Opens a folder, or makes one, with what is known from before. What is left in the journal is still to be read: see
/// [`Gathered::resume`].
pub fn open(path: &Path, max_size: u64, rates: Option<Rates>) -> Result<(Gathered, Keeper), HistoryError> {
    if max_size < LEAST_SIZE {
        return Err(HistoryError::TooSmall { size: max_size, least: LEAST_SIZE });
    }
    let folder = Folder::open(path)?;
    let files = folder.files()?;
    let (journal, unread) = Journal::open(path, max_size / JOURNAL_PART)?;
    let mut marks = BTreeMap::new();
    for (cluster, file) in &files {
        marks.insert(cluster.clone(), file.journal()?);
    }
    let mut gathered = Gathered::keeping(path.to_path_buf(), journal, unread, marks);
    gathered.rates = rates;
    let now_ns = now_ns();
    for (cluster, file) in &files {
        let before = file.before(now_ns)?;
        if let Some(cluster) = gathered.clusters.cluster(cluster) {
            cluster.resume(before, now_ns);
        }
    }
    let most_bytes = max_size - max_size / JOURNAL_PART;
    Ok((gathered, Keeper { folder, files, most_bytes }))
}

impl Keeper {
    /// Writes what is new. What cannot be written stays in the journal and is tried again.
    pub fn keep(&mut self, gathered: &Mutex<Gathered>) -> Result<(), HistoryError> {
        let Some(batch) = lock(gathered).batch()? else { return Ok(()) };
        let mut worst = None;
        for (cluster, news) in batch.news {
            if let Err(error) = self.write(&cluster, &news, batch.journal) {
                worst = Some(error);
                lock(gathered).put_back(&cluster, news);
            }
        }
        match worst {
            Some(error) => Err(error),
            None => lock(gathered).forget_journal(batch.journal),
        }
    }

    fn write(&mut self, cluster: &str, news: &gpuwhy_fleet::News, journal: u64) -> Result<(), HistoryError> {
        if !self.files.contains_key(cluster) {
            let file = ClusterFile::open(&file_of(self.folder.path(), cluster))?;
            self.files.insert(cluster.to_owned(), file);
        }
        let file = self.files.get_mut(cluster);
        file.map_or(Ok(()), |file| file.keep(news, journal))
    }

    /// Adds up windows that are over and deletes what is too old.
    pub fn tidy(&mut self, now_ns: u64) -> Result<(), HistoryError> {
        let most_bytes = self.most_bytes / (self.files.len() as u64).max(1);
        self.files.values_mut().try_for_each(|file| {
            file.roll_up(now_ns)?;
            file.forget(now_ns, most_bytes)
        })
    }

    /// Keeps what is new from now on, until it is finished.
    pub fn start(self, gathered: Arc<Mutex<Gathered>>) -> Result<Keeping, HistoryError> {
        let (stop, stopped) = channel();
        let path = self.folder.path().to_path_buf();
        let mut keeper = self;
        let run = move || {
            let mut is_failing = false;
            loop {
                let is_over = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                let done = keeper.keep(&gathered).and_then(|()| keeper.tidy(now_ns()));
                match &done {
                    Err(error) if !std::mem::replace(&mut is_failing, true) => {
                        tracing::warn!(%error, "the history is not written");
                    }
                    Ok(()) if std::mem::take(&mut is_failing) => tracing::warn!("the history is written again"),
                    _ => {}
                }
                if is_over {
                    return done;
                }
            }
        };
        let thread = thread::Builder::new().name("history".to_owned()).spawn(run);
        Ok(Keeping { stop, thread: thread.map_err(|error| HistoryError::from_io(&path, error))? })
    }
}

/// A keeper at work.
pub struct Keeping {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), HistoryError>>,
}

impl Keeping {
    /// Writes the last of it.
    pub fn finish(self) -> Result<(), HistoryError> {
        drop(self.stop);
        self.thread.join().unwrap_or(Ok(()))
    }
}

fn lock(gathered: &Mutex<Gathered>) -> MutexGuard<'_, Gathered> {
    gathered.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
