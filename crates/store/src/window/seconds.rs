//! Sums per second of single threads, second by second.

use std::collections::BTreeMap;

use gpuwhy_model::{ThreadId, ThreadTimes};
use gpuwhy_window::{Scope, ThreadSecond};

use super::source::{Source, id, unsigned};
use super::sums::{self, bucket_bounds};
use crate::cells::read;
use crate::{StoreError, Trace};

impl Trace {
    /// The seconds of these threads, in the order of time.
    pub fn thread_seconds(
        &self,
        scope: &Scope,
        threads: &[ThreadId],
    ) -> Result<BTreeMap<ThreadId, Vec<ThreadSecond>>, StoreError> {
        let loaded = Source::new(self.connection()).and_then(|source| load(&source, scope, threads));
        loaded.map_err(|error| StoreError::from_sqlite(self.path(), error))
    }
}

fn load(
    source: &Source<'_>,
    scope: &Scope,
    threads: &[ThreadId],
) -> rusqlite::Result<BTreeMap<ThreadId, Vec<ThreadSecond>>> {
    let mut seconds: BTreeMap<ThreadId, Vec<ThreadSecond>> = BTreeMap::new();
    let buckets = bucket_bounds(scope);
    source.each(&sums::threads_sql(source), buckets, |row| {
        let times = read::<ThreadTimes>(row, 0).filter(|times| threads.contains(&times.thread));
        let Some(times) = times else { return Ok(()) };
        seconds.entry(times.thread).or_default().push(ThreadSecond { times, calls: Vec::new() });
        Ok(())
    })?;
    source.each(&sums::calls_sql(source), buckets, |row| {
        let Some(thread) = id(row, 1)?.map(ThreadId) else { return Ok(()) };
        let Some(second) = seconds.get_mut(&thread).and_then(|own| nearest(own, unsigned(row, 0).ok()?)) else {
            return Ok(());
        };
        second.calls.extend(sums::sum_of_second(row)?);
        Ok(())
    })?;
    Ok(seconds)
}

/// Clocks and counters are read one after the other: what belongs together begins at about the same time.
fn nearest(seconds: &mut [ThreadSecond], bucket_ns: u64) -> Option<&mut ThreadSecond> {
    let after = seconds.partition_point(|second| second.times.bucket_ns < bucket_ns);
    let candidates = after.saturating_sub(1)..(after + 1).min(seconds.len());
    seconds.get_mut(candidates)?.iter_mut().min_by_key(|second| second.times.bucket_ns.abs_diff(bucket_ns))
}
