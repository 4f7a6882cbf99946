use clap::Args;
use gpuwhy_model::{Reference, UnixNs};
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kept::{self, Kept};
use crate::{Ask, AskError, Asked, Basis, Paging, Part, cited};

/// The log of calls into GPU libraries in the order of time, usually of one process (`pid`): who called what, with which
/// kernel, stream and size, what it returned, and which module and line made the call. It can be read on while the trace
/// grows.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Audit {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
    /// Only this thread.
    #[arg(long)]
    #[serde(default)]
    pub tid: Option<u32>,
    /// Only calls of this function, by the driver's name or the runtime's, with or without `_v2`.
    #[arg(long)]
    #[serde(default)]
    pub op: Option<String>,
    /// Only calls that returned an error.
    #[arg(long)]
    #[serde(default)]
    pub failed: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct AuditLog {
    #[serde(flatten)]
    pub basis: Basis,
    /// The earliest first.
    pub calls: Vec<AuditedCall>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
    /// What to say as `after` later, for calls that are added to the trace.
    pub last: Option<String>,
    /// How many calls of the part have a record, of all that were made: the others are only counted.
    pub kept: Kept,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AuditedCall {
    /// The record, as findings cite it.
    #[serde(deserialize_with = "cited::call")]
    pub r#ref: Reference,
    #[schemars(with = "UnixNs")]
    pub timestamp_ns: u64,
    pub duration_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub op: String,
    /// The runtime's function, where libcudart made the call.
    pub runtime_op: Option<String>,
    /// The kernel that a launch launches.
    pub kernel: Option<String>,
    pub device: Option<u32>,
    /// The stream's handle, in hexadecimal digits.
    pub stream: Option<String>,
    pub bytes: Option<u64>,
    /// Where a copy goes.
    pub direction: Option<String>,
    pub ret_code: i64,
    /// The file of the code that made the call.
    pub caller: Option<String>,
    /// The user's own line, where the stack is known.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
}

const SQL: &str = "
SELECT timestamp_ns AS ref, timestamp_ns, duration_ns, pid, tid, comm, op, runtime_op, kernel, device,
  CASE WHEN stream IS NOT NULL THEN printf('0x%x', stream) END AS stream, bytes, direction, ret_code, caller,
  file, line, function
FROM cuda_events
LEFT JOIN stacks ON stacks.id = cuda_events.stack_id
LEFT JOIN (SELECT id AS frame, file, line, function FROM frames) ON frame = stacks.site_frame_id
WHERE timestamp_ns > ? AND timestamp_ns >= ? AND timestamp_ns < ? AND (? IS NULL OR pid = ?) AND (? IS NULL OR tid = ?)
  AND (? IS NULL OR op IN (SELECT value FROM json_each(?)) OR runtime_op IN (SELECT value FROM json_each(?)))
  AND (NOT ? OR ret_code <> 0)
ORDER BY timestamp_ns LIMIT ?";

impl Ask for Audit {
    const NAME: &'static str = "audit";

    type Answer = AuditLog;

    fn ask(&self, asked: &Asked<'_>) -> Result<AuditLog, AskError> {
        let reading = asked.read(&self.part)?;
        let limit = self.paging.limit()?;
        let names = reading.names_of(self.op.as_deref())?;
        let tid = self.tid.map_or(Value::Null, |tid| Value::Integer(tid.into()));
        let values = [
            &[Value::Integer(self.paging.after_number()?.unwrap_or(-1))],
            &reading.bounds()[..],
            &[tid.clone(), tid, names.clone(), names.clone(), names],
            &[Value::Integer(self.failed.into()), Value::Integer(limit as i64 + 1)],
        ];
        let mut calls: Vec<AuditedCall> = reading.select(SQL, &values.concat())?;
        let is_more = calls.len() > limit;
        calls.truncate(limit);
        let last = calls.last().map(|call| call.timestamp_ns.to_string()).or_else(|| self.paging.after.clone());
        let next = last.clone().filter(|_| is_more);
        Ok(AuditLog { basis: Basis::read(&reading)?, calls, next, last, kept: kept::calls(&reading)? })
    }
}
