//! The records that a finding's chain of evidence cites, with whose they are: for who draws them elsewhere.

use std::collections::BTreeMap;

use gpuwhy_model::{Finding, RecordKind, Reference};
use gpuwhy_store::Value;
use serde::Deserialize;

use crate::reading::Reading;
use crate::{AskError, Asked, Part};

/// What a chain cites, as far as the trace still has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cited {
    pub records: BTreeMap<Reference, CitedRecord>,
    /// The victim, and whoever the records are of, by pid.
    pub processes: BTreeMap<u32, CitedProcess>,
}

/// A call, a wait, work of the kernel or a request to a disk.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct CitedRecord {
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Where its time went, where that is known.
    pub running_ns: Option<u64>,
    pub runqueue_ns: Option<u64>,
    pub blocked_ns: Option<u64>,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// The function, or the kind of wait.
    pub name: String,
    /// Of a call; of anything else, the call it happened in.
    pub function: Option<String>,
    /// What a call returned, where that is no success.
    pub error: Option<i64>,
    pub bytes: Option<u64>,
    /// A GPU or a disk.
    pub device: Option<String>,
    /// What was waited on.
    pub target: Option<String>,
    pub woken_by_pid: Option<u32>,
    pub woken_by_tid: Option<u32>,
    pub woken_by_comm: Option<String>,
    /// Who had the CPU meanwhile.
    pub taken_by_pid: Option<u32>,
    pub taken_by_tid: Option<u32>,
    pub taken_by_comm: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CitedProcess {
    pub comm: String,
    /// What it belongs to: its container, pod, job and more.
    pub labels: BTreeMap<String, String>,
}

/// How records of each kind are read.
const KINDS: &[(RecordKind, &str)] = &[
    (
        RecordKind::Cuda,
        "SELECT timestamp_ns AS start_ns, duration_ns, running_ns, runqueue_ns, blocked_ns, pid, tid, comm,
           coalesce(runtime_op, op) AS name, coalesce(runtime_op, op) AS function, nullif(ret_code, 0) AS error, bytes,
           CAST(device AS TEXT) AS device, woken_by_pid, woken_by_tid, woken_by_comm,
           preempted_by_pid AS taken_by_pid, preempted_by_tid AS taken_by_tid, preempted_by_comm AS taken_by_comm
         FROM cuda_events",
    ),
    (
        RecordKind::Sched,
        "SELECT timestamp_ns AS start_ns, duration_ns, 0 AS running_ns, runqueue_ns, blocked_ns, pid, tid, comm,
           CASE WHEN target_kind IN ('lock', 'gil') THEN target_kind || ' wait' WHEN blocked_on IS NOT NULL
             THEN blocked_on || ' wait' WHEN is_throttled THEN 'throttled' ELSE 'run queue' END AS name,
           op AS function, target, woken_by_pid, woken_by_tid, woken_by_comm, taken_by_pid, taken_by_tid, taken_by_comm
         FROM sched_events",
    ),
    (
        RecordKind::Kernel,
        "SELECT timestamp_ns AS start_ns, duration_ns, pid, tid, comm, kind AS name, op AS function, target
         FROM kernel_events",
    ),
    (
        RecordKind::Io,
        "SELECT timestamp_ns AS start_ns, duration_ns, pid, tid, comm, 'disk ' || direction AS name, bytes, device
         FROM io_events",
    ),
];

/// Of processes that had the same pid one after the other, the last one.
const PROCESSES: &str = "
SELECT pid, comm, key, value FROM processes LEFT JOIN process_labels ON process_id = processes.id
WHERE processes.id IN (SELECT max(id) FROM processes WHERE pid IN (SELECT value FROM json_each(?)) GROUP BY pid)";

/// Looks up what a finding cites; no more records than this, those that come first.
pub fn cited_records(asked: &Asked<'_>, finding: &Finding, most: usize) -> Result<Cited, AskError> {
    let reading = asked.read(&Part::default())?;
    let references: Vec<Reference> = finding.chain.edges().flat_map(|edge| &edge.refs).copied().take(most).collect();
    let mut cited = Cited::default();
    for (kind, select) in KINDS {
        let of_kind: Vec<u64> =
            references.iter().filter(|reference| reference.kind == *kind).map(|reference| reference.start_ns).collect();
        if !of_kind.is_empty() {
            let sql = format!("{select} WHERE timestamp_ns IN (SELECT value FROM json_each(?))");
            let rows: Vec<CitedRecord> = reading.select(&sql, &[list(&of_kind)])?;
            cited.records.extend(rows.into_iter().map(|row| (kind.at(row.start_ns), row)));
        }
    }
    let pids = cited.records.values().map(|record| record.pid).chain([finding.victim.pid]);
    cited.processes = processes(&reading, &pids.collect::<Vec<_>>())?;
    Ok(cited)
}

fn processes(reading: &Reading, pids: &[u32]) -> Result<BTreeMap<u32, CitedProcess>, AskError> {
    #[derive(Deserialize)]
    struct Row {
        pid: u32,
        comm: String,
        key: Option<String>,
        value: Option<String>,
    }
    let mut processes: BTreeMap<u32, CitedProcess> = BTreeMap::new();
    for Row { pid, comm, key, value } in reading.select::<Row>(PROCESSES, &[list(pids)])? {
        let process = processes.entry(pid).or_default();
        process.comm = comm;
        process.labels.extend(key.zip(value));
    }
    Ok(processes)
}

/// Numbers as one value: for `IN (SELECT value FROM json_each(?))`.
fn list<T: Copy + Into<serde_json::Value>>(numbers: &[T]) -> Value {
    let numbers: serde_json::Value = numbers.iter().map(|&number| number.into()).collect();
    Value::Text(numbers.to_string())
}
