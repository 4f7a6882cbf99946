//! Where named rows go.
//!
//! Each sink has a thread and a bounded queue of its own ([`Outlet`]): one that is slow, stuck or broken harms nobody
//! else, and what it misses is counted. To add one, write its file and its line in [`SINKS`].

mod alerts;
mod collectives;
mod digests;
mod directory;
mod live_view;
mod metrics;
mod outlet;
#[cfg(test)]
mod tests;
mod trace_file;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use gpuwhy_model::{Row, Session, SessionEnd};

use crate::live::Watch;
use crate::options::TraceOptions;
pub use outlet::{Backlog, Outlet};

/// Every sink there is. One that nobody asks for is not opened.
pub const SINKS: &[Open] = &[trace_file::open, live_view::open, metrics::open, alerts::open, digests::open];

type Open = fn(&mut Opening<'_>) -> Result<Option<Box<dyn Sink>>>;

/// What sinks are opened with.
pub struct Opening<'a> {
    pub options: &'a TraceOptions,
    pub session: &'a Session,
    /// Somebody who watches; the first sink that wants it takes it.
    pub watch: Option<Box<dyn Watch>>,
    pub stored: Arc<Stored>,
}

/// What the trace file has come to, for the others.
#[derive(Default)]
pub struct Stored {
    pub calls: AtomicU64,
    /// Calls that could not be written.
    pub not_written: AtomicU64,
}

pub trait Sink: Send {
    /// What it is called in messages: `the trace file`.
    fn name(&self) -> &'static str;

    /// Tells the rows that matter to it. Others do not wake it up.
    fn wants(&self) -> fn(&Row) -> bool {
        |_| true
    }

    /// How long rows may stay in the kernel's rings because this sink is behind. After that it misses rows.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the trace ends when this sink fails.
    fn is_essential(&self) -> bool {
        false
    }

    /// Takes rows that were handed over together. After an error it gets no more.
    fn take(&mut self, rows: &[Row]) -> Result<Request>;

    /// The trace is over. `lost_calls` are those that the queue had no room for.
    fn finish(self: Box<Self>, _end: &SessionEnd, _lost_calls: u64) -> Result<()> {
        Ok(())
    }
}

/// What a sink wants of the tracer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Request {
    #[default]
    Nothing,
    /// Frames of stacks once more, with new numbers.
    StacksAgain,
}
