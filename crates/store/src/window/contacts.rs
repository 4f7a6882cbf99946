//! Who spoke to whom first.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{ProcessId, Span, Stretch, TargetKind};
use gpuwhy_window::Window;

use super::source::{Source, signed};
use crate::cells::read;

/// So many waits from the beginning of the trace on are looked at: processes that have not spoken by then remain unknown.
const MOST: usize = 100_000;

/// What the window has of the waits is not read again: only those before it, and those after what it has without a gap.
pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("stretches", "woken_by_thread_id") {
        return Ok(());
    }
    let nothing = Span { from_ns: window.from_ns, to_ns: window.from_ns };
    let there = window.stretches.spans.first().copied().unwrap_or(nothing);
    let mut first = FirstWords { window, left: MOST, at_ns: BTreeMap::new() };
    first.read(source, Span { from_ns: 0, to_ns: there.from_ns })?;
    window.stretches.rows.iter().take_while(|wait| wait.start_ns < there.to_ns).for_each(|wait| first.hear(wait));
    first.read(source, Span { from_ns: there.to_ns, to_ns: u64::MAX })?;
    window.spoke_first = first.answered();
    Ok(())
}

/// When a process first ended a wait of another one, by what it waited for.
struct FirstWords<'a> {
    window: &'a Window,
    left: usize,
    at_ns: BTreeMap<(ProcessId, ProcessId, TargetKind), u64>,
}

impl FirstWords<'_> {
    fn read(&mut self, source: &Source<'_>, span: Span) -> rusqlite::Result<()> {
        source.each(
            &source.select_in_time::<Stretch>(),
            [signed(span.from_ns), signed(span.to_ns), self.left as i64],
            |row| {
                read(row, 0).iter().for_each(|wait| self.hear(wait));
                Ok(())
            },
        )
    }

    fn hear(&mut self, wait: &Stretch) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let process = |thread| self.window.process_id(thread);
        let target = wait.target.and_then(|target| self.window.targets.get(&target));
        let (Some(speaker), Some(listener), Some(target)) =
            (wait.woken_by.and_then(process), process(wait.thread), target)
        else {
            return;
        };
        if speaker != listener {
            let end_ns = wait.start_ns.saturating_add(wait.blocked_ns);
            let first_ns = self.at_ns.entry((speaker, listener, target.kind)).or_insert(end_ns);
            *first_ns = end_ns.min(*first_ns);
        }
    }

    /// Who spoke before the other one answered.
    fn answered(&self) -> BTreeSet<(ProcessId, ProcessId, TargetKind)> {
        let answer_ns = |&(speaker, listener, kind): &_| self.at_ns.get(&(listener, speaker, kind));
        let is_first = |(key, at_ns): &(&_, &u64)| answer_ns(key).is_some_and(|answer_ns| answer_ns > *at_ns);
        self.at_ns.iter().filter(is_first).map(|(key, _)| *key).collect()
    }
}
