//! Who spoke to whom first.

use std::collections::BTreeMap;

use gpuwhy_model::{ProcessId, TargetKind};
use gpuwhy_window::Window;

use super::source::Source;

/// So many waits from the beginning of the trace on are looked at: processes that have not spoken by then remain unknown.
const MOST: u32 = 100_000;

const SQL: &str = "
    SELECT wakers.process_id, waiters.process_id, wait_targets.kind, min(first.end_ns)
    FROM (SELECT thread_id, woken_by_thread_id, target_id, start_ns + blocked_ns AS end_ns FROM stretches
        ORDER BY start_ns LIMIT ?) AS first
    JOIN threads AS waiters ON waiters.id = first.thread_id
    JOIN threads AS wakers ON wakers.id = first.woken_by_thread_id
    JOIN wait_targets ON wait_targets.id = first.target_id
    WHERE waiters.process_id <> wakers.process_id GROUP BY 1, 2, 3";

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("stretches", "woken_by_thread_id") {
        return Ok(());
    }
    let mut first_ns: BTreeMap<(ProcessId, ProcessId, TargetKind), i64> = BTreeMap::new();
    source.each(SQL, [MOST], |row| {
        let kind = row.get_ref(2)?.as_str()?;
        if let Some(&kind) = TargetKind::ALL.iter().find(|one| one.as_str() == kind) {
            first_ns.insert((ProcessId(row.get(0)?), ProcessId(row.get(1)?), kind), row.get(3)?);
        }
        Ok(())
    })?;
    let answered_ns = |&(speaker, listener, kind): &_| first_ns.get(&(listener, speaker, kind));
    let is_first = |(key, at_ns): &(&_, &i64)| answered_ns(key).is_some_and(|answered_ns| answered_ns > *at_ns);
    window.spoke_first = first_ns.iter().filter(is_first).map(|(key, _)| *key).collect();
    Ok(())
}
