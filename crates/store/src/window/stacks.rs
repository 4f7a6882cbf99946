//! The stacks that loaded records cite, and how the walks over stacks ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuwhy_model::{Frame, PythonEnd, StackId, StackSample, StackWalks, ThreadId, WalkEnd, WalksEnded};
use gpuwhy_window::{LoadedStack, Scope, Window, site_position};
use hashbrown::HashMap;

use super::source::{Source, id, unsigned, word};
use super::sums::bucket_bounds;
use crate::cells::read;
use crate::{StoreError, Trace};

/// The most stacks, and frames in all of them, that are kept in memory: those in which most time passed.
const MOST_STACKS: usize = 50_000;
const MOST_POSITIONS: usize = 1_000_000;

/// What a sample stands for, about.
const SAMPLE_NS: u64 = 20_000_000;

/// Where threads were seen running, and how walks ended.
pub(super) fn load_sums(source: &Source<'_>, scope: &Scope, window: &mut Window) -> rusqlite::Result<()> {
    let buckets = bucket_bounds(scope);
    load_samples(source, window, buckets)?;
    load_moments(source, window, buckets)?;
    window.stack_walks = walks(source, buckets)?;
    Ok(())
}

/// One for each thread and stack.
fn load_samples(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    if !source.has("stack_samples", "count") {
        return Ok(());
    }
    let sql = "SELECT min(bucket_ns), thread_id, stack_id, sum(count) FROM stack_samples
        WHERE bucket_ns >= ? AND bucket_ns < ? GROUP BY thread_id, stack_id";
    source.each(sql, buckets, |row| {
        let (Some(thread), Some(stack)) = (id(row, 1)?, id(row, 2)?) else { return Ok(()) };
        let (bucket_ns, count) = (unsigned(row, 0)?, unsigned(row, 3)?);
        window.samples.push(StackSample { bucket_ns, thread: ThreadId(thread), stack: StackId(stack), count });
        Ok(())
    })
}

/// The last ones, where there are very many.
fn load_moments(source: &Source<'_>, window: &mut Window, buckets: [i64; 2]) -> rusqlite::Result<()> {
    if !source.has("stack_samples", "count") {
        return Ok(());
    }
    let callers: BTreeSet<ThreadId> = window.call_sums.iter().map(|sum| sum.thread).collect();
    let sql = "SELECT bucket_ns, thread_id, stack_id, count FROM stack_samples
        WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns DESC LIMIT 200000";
    source.each(sql, buckets, |row| {
        let (Some(thread), Some(stack)) = (id(row, 1)?, id(row, 2)?) else { return Ok(()) };
        let (bucket_ns, thread, stack, count) =
            (unsigned(row, 0)?, ThreadId(thread), StackId(stack), unsigned(row, 3)?);
        if callers.contains(&thread) {
            window.moments.push(StackSample { bucket_ns, thread, stack, count });
        }
        Ok(())
    })?;
    window.moments.reverse();
    Ok(())
}

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("stacks", "id") {
        window.gaps.push("the file is of an earlier version, without stacks".to_owned());
        return Ok(());
    }
    let cited = cited(window);
    let (mut loader, mut left) = (StackLoader::new(source), MOST_POSITIONS);
    for &(stack, _) in cited.iter().take(MOST_STACKS) {
        let Some(loaded) = loader.load(stack)? else { continue };
        let Some(after) = left.checked_sub(loaded.frames.len()) else { break };
        left = after;
        window.stacks.insert(stack, loaded);
    }
    Ok(())
}

/// Every stack that a record of the window cites and the time that passed in it, the most first.
fn cited(window: &Window) -> Vec<(StackId, u64)> {
    let calls = window.calls.rows.iter().chain(&window.memory_calls.rows);
    let calls = calls.map(|call| (call.stack_id, call.duration_ns));
    let stretches = window.stretches.rows.iter();
    let stretches = stretches.flat_map(|one| [one.stack, one.waker_stack].map(|stack| (stack, one.blocked_ns)));
    let mut times: HashMap<StackId, u64> = HashMap::new();
    let samples = window.samples.iter().map(|sample| (Some(sample.stack), sample.count.saturating_mul(SAMPLE_NS)));
    let standstills = window.standstills.iter().map(|one| (one.stack, one.seen_ns.saturating_sub(one.start_ns)));
    for (stack, ns) in calls.chain(stretches).chain(samples).chain(standstills) {
        let Some(stack) = stack else { continue };
        let sum = times.entry(stack).or_default();
        *sum = sum.saturating_add(ns);
    }
    let mut cited: Vec<(StackId, u64)> = times.into_iter().collect();
    cited.sort_unstable_by_key(|&(stack, ns)| (Reverse(ns), stack));
    cited
}

/// Reads stacks one by one. Frames that several of them have are in memory once.
pub(crate) struct StackLoader<'s, 'c> {
    source: &'s Source<'c>,
    frames: HashMap<u32, Arc<Frame>>,
    frame_sql: String,
}

impl<'s, 'c> StackLoader<'s, 'c> {
    pub fn new(source: &'s Source<'c>) -> Self {
        Self { source, frames: HashMap::new(), frame_sql: format!("{} WHERE id = ?", source.select::<Frame>("")) }
    }

    /// `None` for a stack that is not in the file, and for one whose frames were not written.
    pub fn load(&mut self, stack: StackId) -> rusqlite::Result<Option<LoadedStack>> {
        let mut ends = None;
        let sql = "SELECT end, python_end FROM stacks WHERE id = ? AND depth IS NOT NULL";
        self.source.each(sql, [stack.0], |row| {
            let end = word(row, 0, WalkEnd::ALL, WalkEnd::as_str)?;
            ends = Some((end, word(row, 1, PythonEnd::ALL, PythonEnd::as_str)?));
            Ok(())
        })?;
        let Some((end, python_end)) = ends else { return Ok(None) };
        let frames = self.frames(stack)?;
        let site = site_position(frames.iter().map(Arc::as_ref));
        let (end, python_end) = (end.unwrap_or_default(), python_end.unwrap_or_default());
        Ok(Some(LoadedStack { frames, end, python_end, site }))
    }

    fn frames(&mut self, stack: StackId) -> rusqlite::Result<Vec<Arc<Frame>>> {
        let mut ids = Vec::new();
        let sql = "SELECT frame_id FROM stack_frames WHERE stack_id = ? ORDER BY position";
        self.source.each(sql, [stack.0], |row| {
            ids.extend(id(row, 0)?);
            Ok(())
        })?;
        let frames = ids.into_iter().map(|id| self.frame(id)).collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(frames.into_iter().flatten().collect())
    }

    fn frame(&mut self, frame: u32) -> rusqlite::Result<Option<Arc<Frame>>> {
        if let Some(known) = self.frames.get(&frame) {
            return Ok(Some(known.clone()));
        }
        let mut found = None;
        self.source.each(&self.frame_sql, [frame], |row| {
            found = read(row, 0).map(Arc::new);
            Ok(())
        })?;
        self.frames.extend(found.clone().map(|found| (frame, found)));
        Ok(found)
    }
}

impl Trace {
    /// How the walks over stacks ended, the most frequent first. Files of earlier versions have none.
    pub fn walks_ended(&self, scope: &Scope) -> Result<Vec<WalksEnded>, StoreError> {
        let read =
            || -> rusqlite::Result<Vec<StackWalks>> { walks(&Source::new(self.connection())?, bucket_bounds(scope)) };
        let walks = read().map_err(|error| StoreError::from_sqlite(self.path(), error))?;
        let mut ended: Vec<WalksEnded> = walks.iter().map(StackWalks::ended).collect();
        ended.sort_by_key(|walks| Reverse(walks.count));
        Ok(ended)
    }
}

/// Sums over the buckets of the window, one for each moment and way to end.
fn walks(source: &Source<'_>, buckets: [i64; 2]) -> rusqlite::Result<Vec<StackWalks>> {
    if !source.has("stack_walks", "count") {
        return Ok(Vec::new());
    }
    let sql = format!("{} WHERE bucket_ns >= ? AND bucket_ns < ? ORDER BY bucket_ns", source.select::<StackWalks>(""));
    let mut sums: BTreeMap<_, StackWalks> = BTreeMap::new();
    source.each(&sql, buckets, |row| {
        let Some(walks) = read::<StackWalks>(row, 0) else { return Ok(()) };
        let key = (walks.moment, walks.end, walks.python_end);
        let sum = sums.entry(key).or_insert(StackWalks { count: 0, ns: 0, ..walks });
        sum.count = sum.count.saturating_add(walks.count);
        sum.ns = sum.ns.saturating_add(walks.ns);
        Ok(())
    })?;
    Ok(sums.into_values().collect())
}
