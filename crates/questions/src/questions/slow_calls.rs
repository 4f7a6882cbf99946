use clap::Args;
use gpuwhy_model::{Reference, UnixNs};
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Basis, Paging, Part, cited};

/// The calls into GPU libraries that took longest, each with where its time went (running, waiting for a CPU, blocked),
/// what it was blocked on, who ended that, and the line of code that made it.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SlowCalls {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
    /// Only calls of this function, by the driver's name or the runtime's.
    #[arg(long)]
    #[serde(default)]
    pub op: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct LongestCalls {
    #[serde(flatten)]
    pub basis: Basis,
    /// The longest first.
    pub calls: Vec<SlowCall>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct SlowCall {
    /// The record, as findings cite it.
    #[serde(deserialize_with = "cited::call")]
    pub r#ref: Reference,
    #[schemars(with = "UnixNs")]
    pub timestamp_ns: u64,
    pub duration_ns: u64,
    pub running_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub op: String,
    pub runtime_op: Option<String>,
    /// The kernel that a launch launches.
    pub kernel: Option<String>,
    pub bytes: Option<u64>,
    pub ret_code: i64,
    pub blocked_on: Option<String>,
    pub woken_by_pid: Option<u32>,
    pub woken_by_comm: Option<String>,
    /// The user's own line, where the stack is known.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
}

const SQL: &str = "
SELECT timestamp_ns AS ref, timestamp_ns, duration_ns, running_ns, runqueue_ns, blocked_ns, pid, tid, comm, op,
  runtime_op, kernel, bytes, ret_code, blocked_on, woken_by_pid, woken_by_comm, file, line, function
FROM cuda_events
LEFT JOIN stacks ON stacks.id = cuda_events.stack_id
LEFT JOIN (SELECT id AS frame, file, line, function FROM frames) ON frame = stacks.site_frame_id
WHERE timestamp_ns >= ? AND timestamp_ns < ? AND (? IS NULL OR pid = ?)
  AND (? IS NULL OR op IN (SELECT value FROM json_each(?)) OR runtime_op IN (SELECT value FROM json_each(?)))
ORDER BY duration_ns DESC, timestamp_ns LIMIT ? OFFSET ?";

impl Ask for SlowCalls {
    const NAME: &'static str = "slow_calls";

    type Answer = LongestCalls;

    fn ask(&self, asked: &Asked<'_>) -> Result<LongestCalls, AskError> {
        let reading = asked.read(&self.part)?;
        let names = reading.names_of(self.op.as_deref())?;
        let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
        let values = [&reading.bounds()[..], &[names.clone(), names.clone(), names], &page].concat();
        let mut calls = reading.select(SQL, &values)?;
        let next = self.paging.cut(&mut calls)?;
        Ok(LongestCalls { basis: Basis::read(&reading)?, calls, next })
    }
}
