//! Which threads are drawn, and in which order: those that feed a GPU, those that end their waits, then whoever made
//! most calls or waited longest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{OpId, ThreadId};
use gpuwhy_store::Value;
use serde::Deserialize;

use super::{CallItem, TimelineLane, WaitItem};
use crate::AskError;
use crate::reading::Reading;

pub struct Chosen {
    /// In the order in which they are drawn.
    pub threads: Vec<Candidate>,
    pub left_out: u64,
    /// Functions by their names and classes.
    pub ops: BTreeMap<OpId, (String, String)>,
}

/// A thread that may get a lane.
#[derive(Clone)]
pub struct Candidate {
    pub thread: ThreadId,
    facts: Facts,
    activity: Activity,
}

#[derive(Clone, Default, Deserialize)]
struct Facts {
    thread: u32,
    pid: u32,
    tid: u32,
    comm: String,
    process_comm: String,
}

#[derive(Deserialize)]
struct Sums {
    thread: u32,
    launches: u64,
    in_calls_ns: u64,
}

#[derive(Deserialize)]
struct NamedOp {
    id: u32,
    name: String,
    class: String,
}

/// A second more on both sides: sums are kept for about a second, and a slice may be shorter.
const SUMS: &str = "
SELECT thread_id AS thread, sum(sum_ns) AS in_calls_ns,
  sum(CASE WHEN is_launch THEN count ELSE 0 END) AS launches
FROM call_counts CROSS JOIN ops ON ops.id = op_id
WHERE bucket_ns >= ? - 1500000000 AND bucket_ns < ? + 1500000000 GROUP BY thread_id
ORDER BY launches DESC, in_calls_ns DESC LIMIT 2000";

const FACTS: &str = "
SELECT threads.id AS thread, pid, tid, threads.comm AS comm, processes.comm AS process_comm
FROM threads CROSS JOIN processes ON processes.id = threads.process_id
WHERE threads.id IN (SELECT value FROM json_each(?))";

const BY_TID: &str = "
SELECT threads.id AS thread, pid, tid, threads.comm AS comm, processes.comm AS process_comm
FROM threads CROSS JOIN processes ON processes.id = threads.process_id
WHERE tid IN (SELECT value FROM json_each(?)) ORDER BY threads.id LIMIT 2000";

/// Threads whose names are read, before the best of them are taken.
const MOST_CANDIDATES: usize = 2000;

/// What a thread did in the slice. The order is that of the lanes, from last to first.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Activity {
    launches: u64,
    /// How long threads that launch were blocked until this one ended it.
    ended_ns: u64,
    in_calls_ns: u64,
    off_cpu_ns: u64,
}

pub fn choose(reading: &Reading, wanted: &[u32], most: usize) -> Result<Chosen, AskError> {
    let activity = activity(reading)?;
    let (threads, active) = match wanted {
        [] => by_rank(reading, &activity)?,
        tids => (by_tid(reading, &activity, tids)?, 0),
    };
    let active = active.max(threads.len());
    let threads: Vec<Candidate> = threads.into_iter().take(most).collect();
    Ok(Chosen { left_out: (active - threads.len()) as u64, threads, ops: ops(reading)? })
}

fn activity(reading: &Reading) -> Result<BTreeMap<ThreadId, Activity>, AskError> {
    let [from, to, ..] = reading.bounds();
    let sums: Vec<Sums> = reading.select(SUMS, &[from, to])?;
    let mut activity: BTreeMap<ThreadId, Activity> = BTreeMap::new();
    for sum in sums {
        let thread = activity.entry(ThreadId(sum.thread)).or_default();
        (thread.launches, thread.in_calls_ns) = (sum.launches, sum.in_calls_ns);
    }
    let feeders: BTreeSet<ThreadId> =
        activity.iter().filter(|(_, thread)| thread.launches > 0).map(|(id, _)| *id).collect();
    reading.trace.each_wait(reading.span, &reading.limits(), |wait| {
        let thread = activity.entry(wait.thread).or_default();
        thread.off_cpu_ns = thread.off_cpu_ns.saturating_add(wait.all_ns);
        if let Some(waker) = wait.woken_by.filter(|_| feeders.contains(&wait.thread)) {
            let waker = activity.entry(waker).or_default();
            waker.ended_ns = waker.ended_ns.saturating_add(wait.blocked_ns);
        }
    })?;
    Ok(activity)
}

/// The best first, and how many threads there are. With a process, its threads and whoever ends their waits.
fn by_rank(reading: &Reading, activity: &BTreeMap<ThreadId, Activity>) -> Result<(Vec<Candidate>, usize), AskError> {
    let mut ranked: Vec<(&ThreadId, &Activity)> = activity.iter().collect();
    ranked.sort_by_key(|(thread, one)| (Reverse(**one), **thread));
    let ids: Vec<u32> = ranked.iter().take(MOST_CANDIDATES).map(|(thread, _)| thread.0).collect();
    let facts: Vec<Facts> = reading.select(FACTS, &[Value::Text(serde_json::Value::from(ids).to_string())])?;
    let facts: BTreeMap<u32, Facts> = facts.into_iter().map(|facts| (facts.thread, facts)).collect();
    let candidate = |(thread, one): (&ThreadId, &Activity)| {
        let facts = facts.get(&thread.0)?;
        let is_asked = reading.scope.pid.is_none_or(|pid| facts.pid == pid) || one.ended_ns > 0;
        is_asked.then(|| Candidate { thread: *thread, facts: facts.clone(), activity: *one })
    };
    let left = ranked.len().saturating_sub(MOST_CANDIDATES);
    let candidates: Vec<Candidate> = ranked.into_iter().take(MOST_CANDIDATES).filter_map(candidate).collect();
    let active = candidates.len() + left;
    Ok((candidates, active))
}

/// In the order in which they were asked for. A number may have been given to several threads, one after the other:
/// those that did something come first.
fn by_tid(
    reading: &Reading,
    activity: &BTreeMap<ThreadId, Activity>,
    tids: &[u32],
) -> Result<Vec<Candidate>, AskError> {
    let facts: Vec<Facts> = reading.select(BY_TID, &[Value::Text(serde_json::Value::from(tids).to_string())])?;
    let is_asked = |facts: &Facts| reading.scope.pid.is_none_or(|pid| facts.pid == pid);
    let candidate = |facts: Facts| {
        let thread = ThreadId(facts.thread);
        Candidate { thread, facts, activity: activity.get(&thread).copied().unwrap_or_default() }
    };
    let mut found: Vec<Candidate> = facts.into_iter().filter(is_asked).map(candidate).collect();
    let place = |tid| tids.iter().position(|wanted| *wanted == tid);
    found.sort_by_key(|one| (place(one.facts.tid), Reverse(one.activity)));
    Ok(found)
}

fn ops(reading: &Reading) -> Result<BTreeMap<OpId, (String, String)>, AskError> {
    let ops: Vec<NamedOp> = reading.select("SELECT id, name, class FROM ops", &[])?;
    Ok(ops.into_iter().map(|op| (OpId(op.id), (op.name, op.class))).collect())
}

impl Candidate {
    pub fn lane(&self, calls: Vec<CallItem>, waits: Vec<WaitItem>) -> TimelineLane {
        TimelineLane {
            pid: self.facts.pid,
            tid: self.facts.tid,
            comm: self.facts.comm.clone(),
            process_comm: self.facts.process_comm.clone(),
            is_dispatcher: self.activity.launches > 0,
            calls_count: calls.iter().map(|item| item.5).sum(),
            off_cpu_ns: self.activity.off_cpu_ns,
            calls,
            waits,
        }
    }
}
