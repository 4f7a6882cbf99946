//! Loading a window: one consistent look at a file that may be written to meanwhile.

use gpuwhy_model::Span;
use gpuwhy_window::{Scope, Window};
use rusqlite::Connection;

use super::source::Source;
use super::{calls, collectives, contacts, fabric, gpus, names, records, stacks, sums};
use crate::{StoreError, Trace};

impl Trace {
    /// The part of the trace that `scope` names, in bounded time and memory.
    pub fn window(&self, scope: &Scope) -> Result<Window, StoreError> {
        let window = self.at_one_moment(|connection| load(connection, scope));
        // Pages that were read are not looked at again, and what comes next needs memory, too.
        let window = window.and_then(|window| self.connection().release_memory().map(|()| window));
        window.map_err(|error| StoreError::from_sqlite(self.path(), error))
    }

    /// What a scope comes to: what was asked for, or from the first to the last moment the file knows.
    pub fn span(&self, scope: &Scope) -> Result<Span, StoreError> {
        let found = Source::new(self.connection()).and_then(|source| span(&source, scope));
        found.map_err(|error| StoreError::from_sqlite(self.path(), error))
    }
}

fn load(connection: &Connection, scope: &Scope) -> rusqlite::Result<Window> {
    let source = Source::new(connection)?;
    let span = span(&source, scope)?;
    let mut window = Window { from_ns: span.from_ns, to_ns: span.to_ns, pid: scope.pid, ..Window::default() };
    let hosts = names::load(&source, &mut window)?;
    sums::load(&source, scope, &mut window)?;
    stacks::load_sums(&source, scope, &mut window)?;
    records::load(&source, &mut window)?;
    calls::load(&source, &mut window)?;
    collectives::load(&source, &mut window)?;
    stacks::load(&source, &mut window)?;
    gpus::load(&source, &hosts, &mut window)?;
    fabric::load(&source, &hosts, &mut window)?;
    contacts::load(&source, &mut window)?;
    Ok(window)
}

fn span(source: &Source<'_>, scope: &Scope) -> rusqlite::Result<Span> {
    let mut known = vec![
        "SELECT min(started_ns) FROM sessions",
        "SELECT min(start_ns) FROM calls",
        "SELECT max(start_ns) FROM calls",
        "SELECT max(coalesce(ended_ns, last_commit_ns)) FROM sessions",
    ];
    if source.has("stretches", "start_ns") {
        known.extend(["SELECT min(start_ns) FROM stretches", "SELECT max(start_ns) FROM stretches"]);
    }
    let mut moments = Vec::new();
    for sql in known {
        moments.extend(source.number(sql)?);
    }
    let first_ns = moments.iter().copied().min().unwrap_or(0);
    let last_ns = moments.iter().map(|last| last + 1).max().unwrap_or(0);
    let (from_ns, to_ns) = (scope.from_ns.unwrap_or(first_ns), scope.to_ns.unwrap_or(last_ns));
    // Of the time before and after the trace nothing is known, also not that nobody did anything.
    if from_ns < last_ns && first_ns < to_ns {
        return Ok(Span { from_ns: from_ns.max(first_ns), to_ns: to_ns.min(last_ns) });
    }
    Ok(Span { from_ns, to_ns: to_ns.max(from_ns) })
}
