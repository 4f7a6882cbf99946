//! How much time passed in each stack: what flame graphs are made of.

use gpuwhy_model::StackId;
use rusqlite::types::Value as Parameter;

use crate::window::{Source, StackLoader};
use crate::{Filter, Limits, LoadedStack, QueryError, Trace, Truncation, Value};

/// Whose stacks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StacksOf {
    /// Calls, by how long they took.
    Calls,
    /// Stretches off the CPU, by how long the thread was blocked.
    Waits,
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
}

impl Trace {
    /// Whether any stacks were taken. Files of earlier versions have none.
    pub fn has_stacks(&self) -> Result<bool, QueryError> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'stacks'";
        let has_row = |sql| self.query(sql, &Limits::default()).map(|answer| !answer.rows.is_empty());
        Ok(has_row(sql)? && has_row("SELECT 1 FROM stacks LIMIT 1")?)
    }

    /// The stacks of what matches. The filter is for calls; of waits it means the same, and `op` the call around them.
    pub fn stack_times(&self, of: StacksOf, filter: &Filter, limits: &Limits) -> Result<StackTimes, QueryError> {
        let (sql, parameters) = self.sums_sql(of, filter, limits)?;
        let sums = self.guarded(&sql, &parameters, limits)?;
        let unreadable = QueryError::from_sqlite;
        let source = Source::new(self.connection()).map_err(unreadable)?;
        let mut loader = StackLoader::new(&source);
        let mut times = StackTimes { rows: Vec::new(), truncated: sums.truncated };
        for row in &sums.rows {
            let [Value::Integer(stack), Value::Integer(ns)] = row[..] else { continue };
            let stack = u32::try_from(stack).ok().map(|stack| loader.load(StackId(stack))).transpose();
            let stack = stack.map_err(unreadable)?.flatten();
            times.rows.push(StackTime { stack, ns: u64::try_from(ns).unwrap_or(0) });
        }
        Ok(times)
    }

    fn sums_sql(&self, of: StacksOf, filter: &Filter, limits: &Limits) -> Result<(String, Vec<Parameter>), QueryError> {
        let (view, ns, names) = match of {
            StacksOf::Calls => ("cuda_events", "duration_ns", Filter::CALL_NAMES),
            StacksOf::Waits => ("sched_events", "blocked_ns", Filter::WAIT_NAMES),
        };
        let (conditions, parameters) = filter.conditions(names, &self.known_ops(limits)?);
        let sql = format!(
            "SELECT stack_id, sum({ns}) FROM {view} WHERE {conditions} AND stack_id IS NOT NULL
             GROUP BY stack_id ORDER BY 2 DESC, 1"
        );
        Ok((sql, parameters))
    }
}
