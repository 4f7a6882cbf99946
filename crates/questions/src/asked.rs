//! What a question is asked of.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuwhy_history::Gathered;
use gpuwhy_store::{Limits, Trace};

use crate::fleet::{Granted, GrantedFleet};
use crate::reading::Reading;
use crate::{AskError, Host, Part};

/// The traces that may be asked about, by name. A client names one of them, never a path.
#[derive(Clone, Debug, Default)]
pub struct Traces(Vec<PathBuf>);

impl Traces {
    pub fn new(files: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(files.into_iter().collect())
    }

    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|path| name(path))
    }

    /// The file of this name; of no name, the first.
    pub fn path(&self, wanted: Option<&str>) -> Result<&Path, AskError> {
        let found = match wanted {
            None => self.0.first(),
            Some(wanted) => self.0.iter().find(|path| name(path) == wanted),
        };
        found.map(PathBuf::as_path).ok_or_else(|| AskError::NoTrace {
            wanted: wanted.unwrap_or("").to_owned(),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }

    /// The first file that is not this one: what to compare it with where nothing is named.
    pub fn other_than(&self, path: &Path) -> Option<String> {
        self.0.iter().find(|other| *other != path).map(|other| name(other))
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether anybody still waits for the answer, and how far it is.
#[derive(Clone)]
pub struct Control {
    pub cancelled: Arc<AtomicBool>,
    /// Told now and then how much is done, from 0 to 1, and what is being done.
    pub progress: Arc<Progress>,
}

pub type Progress = dyn Fn(f64, &str) + Send + Sync;

impl Default for Control {
    fn default() -> Self {
        Self { cancelled: Arc::default(), progress: Arc::new(|_, _| {}) }
    }
}

/// How much an answer may hold that comes as a whole and not in pages. Whoever serves others allows little.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// Of anybody's own statement.
    pub statement: Limits,
    /// Stacks that become lines of text, those with the most time first, and their frames all together.
    pub folded_stacks: usize,
    pub folded_frames: usize,
}

impl Default for Bulk {
    fn default() -> Self {
        let statement = Limits { rows: 10_000, time: Duration::from_secs(10), bytes: 1 << 20 };
        Self { statement, folded_stacks: 2_000, folded_frames: 20_000 }
    }
}

pub struct Asked<'a> {
    pub traces: &'a Traces,
    /// What a fleet knows, where it is one that is asked, and of which clusters whoever asks may hear.
    pub fleet: Option<(&'a Mutex<Gathered>, Granted)>,
    pub host: &'a dyn Host,
    pub limits: Limits,
    pub bulk: Bulk,
    pub control: Control,
}

impl<'a> Asked<'a> {
    /// With the usual limits, and nobody who would withdraw the question.
    pub fn new(traces: &'a Traces, host: &'a dyn Host) -> Self {
        let (limits, bulk, control) = Default::default();
        Self { traces, fleet: None, host, limits, bulk, control }
    }

    /// Opens a part of a trace; what is read from it stops when nobody waits for the answer any more.
    pub fn read(&self, part: &Part) -> Result<Reading, AskError> {
        let trace = Trace::open_as_newest(self.traces.path(part.trace.as_deref())?)?;
        trace.stop_when(Arc::clone(&self.control.cancelled));
        let scope = part.scope(&trace)?;
        Reading::new(trace, scope, self.limits)
    }

    /// What a fleet knows, as far as whoever asks may hear of it.
    pub fn gathered(&self) -> Result<GrantedFleet<'a>, AskError> {
        let missing = || AskError::NotHere { message: "this is no fleet, only traces of one host".to_owned() };
        let (fleet, granted) = self.fleet.clone().ok_or_else(missing)?;
        Ok(GrantedFleet { gathered: fleet.lock().unwrap_or_else(PoisonError::into_inner), granted })
    }

    /// Fails when nobody waits for the answer any more.
    pub fn go_on(&self) -> Result<(), AskError> {
        if self.control.cancelled.load(Ordering::Relaxed) { Err(AskError::Cancelled) } else { Ok(()) }
    }

    pub fn progress(&self, done: f64, what: &str) {
        (self.control.progress)(done, what);
    }
}
