use clap::Args;
use gpuwhy_model::Reference;
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Basis, Paging, Part, cited};

/// Time off the CPU: what each thread was blocked on, who ended that and at which lines of the program both were; how
/// long it waited for a CPU, and who had it. The sums are exact.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct OffCpu {
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
    /// Only waits for this reason: futex, io, fault, sleep, poll, stream, ioctl or other.
    #[arg(long)]
    #[serde(default)]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct OffCpuTimes {
    #[serde(flatten)]
    pub basis: Basis,
    /// The clocks of each watched thread, those first that were off the CPU longest. At most 200.
    pub threads: Vec<ThreadClock>,
    /// By thread, reason, what was waited on and who ended it; those with the most time first.
    pub waits: Vec<BlockedOn>,
    /// Who ran on the CPU that a thread waited for, as far as records tell; the most first. At most 200.
    pub takers: Vec<Taker>,
    /// What to say as `after` for the next waits, where there are more.
    pub next: Option<String>,
}

/// Running, without a CPU and blocked add up to the wall time.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct ThreadClock {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub wall_ns: u64,
    pub running_ns: u64,
    /// Runnable, while others had the CPU or the quota was used up.
    pub runqueue_ns: u64,
    /// Of that, stopped by the cgroup's CPU quota. Not known in files of early versions.
    pub throttled_ns: Option<u64>,
    pub blocked_ns: u64,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct BlockedOn {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// How it waited: futex, io, fault, sleep, poll, stream, ioctl or other.
    pub reason: String,
    /// What it waited on: lock, signal, gil, pipe, unix, tcp, socket, eventfd, file, device or other.
    pub target_kind: Option<String>,
    /// An address, a peer, a device.
    pub target: Option<String>,
    /// Who made it runnable; null where an interrupt or a timer did.
    pub woken_by_pid: Option<u32>,
    pub woken_by_tid: Option<u32>,
    pub woken_by_comm: Option<String>,
    /// Waits, short ones without a record too.
    pub count: u64,
    /// Records that say so.
    pub records: u64,
    /// Blocked, short waits too.
    pub blocked_ns: u64,
    /// The longest single one.
    pub max_ns: u64,
    /// That one, as findings cite it.
    #[serde(deserialize_with = "cited::wait")]
    pub max_ref: Reference,
    /// Where the thread waited: the user's own line, where most of the time passed.
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
    /// What whoever ended it was doing, in most of the time.
    pub waker_file: Option<String>,
    pub waker_line: Option<u32>,
    pub waker_function: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Taker {
    /// The thread that waited for a CPU.
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub taken_by_pid: u32,
    pub taken_by_tid: u32,
    pub taken_by_comm: String,
    /// How long it had the CPU meanwhile.
    pub ns: u64,
    /// Records that say so.
    pub records: u64,
}

/// Versions in which these came to be.
const THROTTLING_SINCE: u32 = 3;
const STRETCHES_SINCE: u32 = 3;
const STACKS_SINCE: u32 = 4;

impl Ask for OffCpu {
    const NAME: &'static str = "off_cpu";

    type Answer = OffCpuTimes;

    fn ask(&self, asked: &Asked<'_>) -> Result<OffCpuTimes, AskError> {
        let reading = asked.read(&self.part)?;
        let threads = reading.select(&clocks_sql(&reading), &self.values(reading.bucket_bounds()))?;
        let mut basis = Basis::read(&reading)?;
        let (mut waits, mut takers) = (Vec::new(), Vec::new());
        if reading.trace.version() >= STRETCHES_SINCE {
            asked.progress(0.2, "adding up waits");
            waits = self.waits(&reading)?;
            asked.go_on()?;
            takers = reading.select(TAKERS, &self.values(reading.bounds()))?;
        } else {
            basis.coverage.unattached.push("the file is of an earlier version, without single waits".to_owned());
        }
        let next = self.paging.cut(&mut waits)?;
        Ok(OffCpuTimes { basis, threads, waits, takers, next })
    }
}

impl OffCpu {
    fn waits(&self, reading: &Reading) -> Result<Vec<BlockedOn>, AskError> {
        let reason = self.reason.clone().map_or(Value::Null, Value::Text);
        let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
        let values = [&self.values(reading.bounds())[..], &[reason.clone(), reason], &page].concat();
        reading.select(&waits_sql(reading), &values)
    }

    /// The part and the thread, for `... AND (? IS NULL OR tid = ?)`.
    fn values(&self, bounds: [Value; 4]) -> Vec<Value> {
        let tid = self.tid.map_or(Value::Null, |tid| Value::Integer(tid.into()));
        [&bounds[..], &[tid.clone(), tid]].concat()
    }
}

fn clocks_sql(reading: &Reading) -> String {
    let is_known = reading.trace.version() >= THROTTLING_SINCE;
    let throttled = if is_known { "sum(throttled_ns)" } else { "NULL" };
    format!(
        "SELECT pid, tid, comm, sum(wall_ns) AS wall_ns, sum(running_ns) AS running_ns,
           sum(runqueue_ns) AS runqueue_ns, {throttled} AS throttled_ns, sum(blocked_ns) AS blocked_ns
         FROM thread_times
         WHERE bucket_ns >= ? AND bucket_ns < ? AND (? IS NULL OR pid = ?) AND (? IS NULL OR tid = ?)
         GROUP BY pid, tid, comm ORDER BY sum(runqueue_ns) + sum(blocked_ns) DESC, pid, tid LIMIT 200"
    )
}

/// First by place in the program, then all places together: `max()` of numbers of equal length finds the place with the
/// most time. Beside it, a plain column would be that of any row.
fn waits_sql(reading: &Reading) -> String {
    let (places, joins) = if reading.trace.version() >= STACKS_SINCE {
        (
            "stacks.site_frame_id AS site, waker_stacks.site_frame_id AS waker_site",
            "LEFT JOIN stacks ON stacks.id = stretches.stack_id
             LEFT JOIN stacks AS waker_stacks ON waker_stacks.id = stretches.waker_stack_id",
        )
    } else {
        ("NULL AS site, NULL AS waker_site", "")
    };
    let frames = if reading.trace.version() >= STACKS_SINCE { "frames" } else { NO_FRAMES };
    format!(
        "WITH fine AS (
           SELECT stretches.thread_id AS thread_id, stretches.reason AS reason, stretches.target_id AS target_id,
             stretches.woken_by_thread_id AS waker_id, {places},
             sum(stretches.all_count) AS count, count(*) AS records, sum(stretches.all_blocked_ns) AS blocked_ns,
             max(printf('%020d %d', stretches.blocked_ns, stretches.start_ns)) AS longest
           FROM stretches
           CROSS JOIN threads ON threads.id = stretches.thread_id
           CROSS JOIN processes ON processes.id = threads.process_id
           {joins}
           WHERE stretches.start_ns >= ? AND stretches.start_ns < ? AND (? IS NULL OR processes.pid = ?)
             AND (? IS NULL OR threads.tid = ?) AND stretches.reason IS NOT NULL AND (? IS NULL OR stretches.reason = ?)
           GROUP BY 1, 2, 3, 4, 5, 6),
         coarse AS (
           SELECT thread_id, reason, target_id, waker_id, sum(count) AS count, sum(records) AS records,
             sum(blocked_ns) AS blocked_ns, max(longest) AS longest,
             max(CASE WHEN site IS NOT NULL THEN printf('%020d %d', blocked_ns, site) END) AS site,
             max(CASE WHEN waker_site IS NOT NULL THEN printf('%020d %d', blocked_ns, waker_site) END) AS waker_site
           FROM fine GROUP BY 1, 2, 3, 4 ORDER BY sum(blocked_ns) DESC, 1, 2, 3, 4 LIMIT ? OFFSET ?)
         SELECT processes.pid AS pid, threads.tid AS tid, threads.comm AS comm, coarse.reason AS reason,
           wait_targets.kind AS target_kind, wait_targets.name AS target, waker_processes.pid AS woken_by_pid,
           wakers.tid AS woken_by_tid, wakers.comm AS woken_by_comm, coarse.count AS count, coarse.records AS records,
           coarse.blocked_ns AS blocked_ns, CAST(substr(coarse.longest, 1, 20) AS INTEGER) AS max_ns,
           CAST(substr(coarse.longest, 22) AS INTEGER) AS max_ref,
           sites.file AS file, sites.line AS line, sites.function AS function,
           waker_sites.file AS waker_file, waker_sites.line AS waker_line, waker_sites.function AS waker_function
         FROM coarse
         CROSS JOIN threads ON threads.id = coarse.thread_id
         CROSS JOIN processes ON processes.id = threads.process_id
         LEFT JOIN wait_targets ON wait_targets.id = coarse.target_id
         LEFT JOIN threads AS wakers ON wakers.id = coarse.waker_id
         LEFT JOIN processes AS waker_processes ON waker_processes.id = wakers.process_id
         LEFT JOIN {frames} AS sites ON sites.id = CAST(substr(coarse.site, 22) AS INTEGER)
         LEFT JOIN {frames} AS waker_sites ON waker_sites.id = CAST(substr(coarse.waker_site, 22) AS INTEGER)
         ORDER BY coarse.blocked_ns DESC, coarse.thread_id, coarse.reason, coarse.target_id, coarse.waker_id"
    )
}

/// Stands for the table in files without stacks.
const NO_FRAMES: &str = "(SELECT 0 AS id, NULL AS file, NULL AS line, NULL AS function WHERE 0)";

/// Each record names the two threads that had most of the CPU.
const TAKERS: &str = "
WITH own AS (
  SELECT stretches.* FROM stretches
  CROSS JOIN threads ON threads.id = stretches.thread_id
  CROSS JOIN processes ON processes.id = threads.process_id
  WHERE stretches.start_ns >= ? AND stretches.start_ns < ? AND (? IS NULL OR processes.pid = ?)
    AND (? IS NULL OR threads.tid = ?) AND stretches.runqueue_ns > 0),
taken AS (
  SELECT thread_id, taken_by_thread_id AS taker_id, taken_by_ns AS ns FROM own WHERE taken_by_ns > 0
  UNION ALL SELECT thread_id, also_taken_by_thread_id, also_taken_by_ns FROM own WHERE also_taken_by_ns > 0),
sums AS (SELECT thread_id, taker_id, sum(ns) AS ns, count(*) AS records FROM taken GROUP BY 1, 2)
SELECT processes.pid AS pid, threads.tid AS tid, threads.comm AS comm, taker_processes.pid AS taken_by_pid,
  takers.tid AS taken_by_tid, takers.comm AS taken_by_comm, sums.ns AS ns, sums.records AS records
FROM sums
CROSS JOIN threads ON threads.id = sums.thread_id
CROSS JOIN processes ON processes.id = threads.process_id
CROSS JOIN threads AS takers ON takers.id = sums.taker_id
CROSS JOIN processes AS taker_processes ON taker_processes.id = takers.process_id
ORDER BY sums.ns DESC, sums.thread_id, sums.taker_id LIMIT 200";
