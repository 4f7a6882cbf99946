//! How much time passed in each stack: what flame graphs are made of.

use gpuwhy_model::StackId;
use gpuwhy_window::LoadedStack;
use rusqlite::types::Value as Parameter;

use crate::window::{Source, StackLoader};
use crate::{Filter, Limits, QueryError, Trace, Truncation, Value};

/// Whose stacks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StacksOf {
    /// Calls, by how long they took.
    Calls,
    /// Stretches off the CPU, by how long the thread was blocked.
    Waits,
    /// Those who ended waits, by how long the others were blocked.
    Wakers,
    /// Threads that ran, by how often they were seen. Samples have no time of their own.
    Running,
}

/// Stacks and the time that passed in each, the most first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackTimes {
    pub rows: Vec<StackTime>,
    /// Set when there are more than were returned.
    pub truncated: Option<Truncation>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StackTime {
    /// `None` where the frames were not written.
    pub stack: Option<LoadedStack>,
    pub ns: u64,
    /// Calls, waits or samples.
    pub count: u64,
}

/// The time of all stacks without their frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackSums {
    /// The most first.
    pub rows: Vec<StackSum>,
    /// Set when there are more than were returned.
    pub truncated: Option<Truncation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSum {
    pub stack: StackId,
    pub ns: u64,
    pub count: u64,
}

impl Trace {
    /// Whether any stacks were taken. Files of earlier versions have none.
    pub fn has_stacks(&self) -> Result<bool, QueryError> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'stacks'";
        let has_row = |sql| self.query(sql, &Limits::default()).map(|answer| !answer.rows.is_empty());
        Ok(has_row(sql)? && has_row("SELECT 1 FROM stacks LIMIT 1")?)
    }

    /// The stacks of what matches. The filter is for calls; of waits it means the same, and `op` the call around them.
    /// Of samples there is neither a function nor a duration.
    pub fn stack_times(&self, of: StacksOf, filter: &Filter, limits: &Limits) -> Result<StackTimes, QueryError> {
        let StackSums { rows, truncated } = self.stack_sums(of, filter, limits)?;
        Ok(StackTimes { rows: self.load_stacks(&rows)?, truncated })
    }

    /// The same without frames.
    pub fn stack_sums(&self, of: StacksOf, filter: &Filter, limits: &Limits) -> Result<StackSums, QueryError> {
        let found = Found::of(of);
        let (conditions, parameters) = self.conditions(&found, filter, limits)?;
        let Found { view, stack, ns, count, .. } = found;
        let sql = format!(
            "SELECT {stack}, sum({ns}), sum({count}) FROM {view} WHERE {conditions} AND {stack} IS NOT NULL
             GROUP BY {stack} ORDER BY 2 DESC, 3 DESC, 1"
        );
        let sums = self.guarded(&sql, &parameters, limits)?;
        Ok(StackSums { rows: sums.rows.iter().filter_map(|row| sum(row)).collect(), truncated: sums.truncated })
    }

    /// Frames of stacks, in the same order.
    pub fn load_stacks(&self, sums: &[StackSum]) -> Result<Vec<StackTime>, QueryError> {
        let unreadable = QueryError::from_sqlite;
        let source = Source::new(self.connection()).map_err(unreadable)?;
        let mut loader = StackLoader::new(&source);
        let mut load = |sum: &StackSum| {
            let stack = loader.load(sum.stack).map_err(unreadable)?;
            Ok(StackTime { stack, ns: sum.ns, count: sum.count })
        };
        sums.iter().map(&mut load).collect()
    }

    /// All the time of what matches, with a stack or without. `None` for samples, which are only taken with one.
    pub fn time_with_and_without_stacks(
        &self,
        of: StacksOf,
        filter: &Filter,
        limits: &Limits,
    ) -> Result<Option<u64>, QueryError> {
        let found = Found::of(of);
        let Some((view, ns)) = found.all else { return Ok(None) };
        let (conditions, parameters) = self.conditions(&found, filter, limits)?;
        let sql = format!("SELECT sum({ns}) FROM {view} WHERE {conditions}");
        let rows = self.guarded(&sql, &parameters, limits)?.rows;
        Ok(rows.first().and_then(|row| row.first()).map(number))
    }

    fn conditions(
        &self,
        found: &Found,
        filter: &Filter,
        limits: &Limits,
    ) -> Result<(String, Vec<Parameter>), QueryError> {
        Ok(filter.conditions(found.names, &self.known_ops(limits)?))
    }
}

/// Where stacks of a kind are found.
struct Found {
    view: &'static str,
    stack: &'static str,
    ns: &'static str,
    count: &'static str,
    names: &'static [&'static str],
    /// Where all of the time is found, and in which column.
    all: Option<(&'static str, &'static str)>,
}

/// Samples are of no function.
const NO_NAMES: &[&str] = &["NULL"];

/// What is kept for a second belongs to where its middle lies.
const ALL_CALLS: &str =
    "(SELECT *, bucket_ns + 500000000 AS timestamp_ns, max_ns AS duration_ns, runtime_name AS runtime_op,
  CASE WHEN count > 0 THEN sum_ns * max(estimate, count) / count ELSE 0 END AS all_ns FROM call_stats)";

const SAMPLES: &str =
    "(SELECT bucket_ns + 500000000 AS timestamp_ns, 0 AS duration_ns, pid, tid, stack_id, count FROM stack_samples
  CROSS JOIN threads ON threads.id = thread_id CROSS JOIN processes ON processes.id = process_id)";

impl Found {
    fn of(of: StacksOf) -> Self {
        let waits = Self {
            view: "sched_events",
            stack: "stack_id",
            ns: "blocked_ns",
            count: "1",
            names: Filter::WAIT_NAMES,
            all: Some(("sched_events", "all_blocked_ns")),
        };
        match of {
            StacksOf::Calls => Self {
                view: "cuda_events",
                ns: "duration_ns",
                names: Filter::CALL_NAMES,
                all: Some((ALL_CALLS, "all_ns")),
                ..waits
            },
            StacksOf::Waits => waits,
            StacksOf::Wakers => Self { stack: "waker_stack_id", ..waits },
            StacksOf::Running => Self { view: SAMPLES, ns: "0", count: "count", names: NO_NAMES, all: None, ..waits },
        }
    }
}

fn sum(row: &[Value]) -> Option<StackSum> {
    let [Value::Integer(stack), ns, count] = row else { return None };
    let stack = StackId(u32::try_from(*stack).ok()?);
    Some(StackSum { stack, ns: number(ns), count: number(count) })
}

fn number(value: &Value) -> u64 {
    match value {
        Value::Integer(number) => u64::try_from(*number).unwrap_or(0),
        Value::Real(number) => *number as u64,
        _ => 0,
    }
}
