mod follow;
mod unknown;

use clap::Args;
use gpuwhy_model::{CallClass, MemoryKind, ProcessId, Reference, Span, UnixNs};
use gpuwhy_window::{Scope, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::follow::Followed;
use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// GPU memory: what is live, what it was at its peak, how it grew, which lines of the program allocated it, how often
/// memory is allocated only to be freed again, which allocations failed, and what is not known of all that. What a
/// framework hands out of memory that it keeps for itself is not seen.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Memory {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MemoryUse {
    #[serde(flatten)]
    pub basis: Basis,
    pub processes: Vec<ProcessMemory>,
    /// Where live memory was allocated, the most bytes first.
    pub sites: Vec<MemorySite>,
    /// What to say as `after` for the next sites, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ProcessMemory {
    pub pid: u32,
    pub comm: String,
    /// Calls that allocate, failed ones too. Estimated where not all were seen.
    pub allocations: u64,
    pub frees: u64,
    pub allocations_per_second: f64,
    pub frees_per_second: f64,
    /// Allocations that were refused.
    pub failed: u64,
    /// The last ones of these that have a record, at most 10.
    pub failures: Vec<FailedAllocation>,
    pub churn: Churn,
    /// By device and kind of memory.
    pub pools: Vec<Pool>,
    /// Why the figures may be off, in words.
    pub unknown: Vec<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FailedAllocation {
    /// The record, as findings cite it.
    pub r#ref: Reference,
    #[schemars(with = "UnixNs")]
    pub timestamp_ns: u64,
    pub op: String,
    pub bytes: Option<u64>,
    pub ret_code: i32,
    pub place: SourcePlace,
}

/// Memory that was allocated after the first sixth of the time, when programs have warmed up, and freed again.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Churn {
    pub count: u64,
    pub bytes: u64,
    pub per_second: f64,
    /// How long it was kept.
    pub median_lifetime_ns: Option<u64>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Pool {
    /// Null where the call does not say.
    pub device: Option<u16>,
    pub kind: MemoryKind,
    /// At the end of the window.
    pub live_bytes: u64,
    pub live_count: u64,
    pub peak_bytes: u64,
    #[schemars(with = "UnixNs")]
    pub peak_at_ns: u64,
    /// After the first sixth of the time. Null where less than a second is left.
    pub growth_bytes_per_minute: Option<f64>,
    /// Where it changed, at most 200 points.
    pub series: Vec<Point>,
    /// As far as addresses tell.
    pub fragmentation: Option<Fragmentation>,
}

#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Point {
    /// Until when.
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    pub live_bytes: u64,
    /// The most since the point before.
    pub peak_bytes: u64,
}

/// Addresses are virtual: a driver may leave gaps that cost no memory.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Fragmentation {
    /// From the lowest live address to the end of the highest.
    pub span_bytes: u64,
    /// Share of that span that is live.
    pub live_share: f64,
    pub gaps: u64,
    pub largest_gap_bytes: u64,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct MemorySite {
    pub pid: u32,
    pub device: Option<u16>,
    pub kind: MemoryKind,
    pub place: SourcePlace,
    pub live_bytes: u64,
    pub live_count: u64,
    /// When the oldest of it was allocated.
    #[schemars(with = "Option<UnixNs>")]
    pub oldest_ns: Option<u64>,
    /// The record of the newest, as findings cite it.
    pub newest_ref: Option<Reference>,
    /// After the first sixth of the time. Null where less than a second is left.
    pub growth_bytes_per_minute: Option<f64>,
    /// Allocations with a record, live or not.
    pub allocations: u64,
    pub allocated_bytes: u64,
}

/// The user's own line where a stack is known, else the file that called.
#[derive(Clone, Debug, Default, JsonSchema, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourcePlace {
    pub file: Option<String>,
    pub line: Option<u32>,
    pub function: Option<String>,
}

impl Ask for Memory {
    const NAME: &'static str = "memory";

    type Answer = MemoryUse;

    fn ask(&self, asked: &Asked<'_>) -> Result<MemoryUse, AskError> {
        let reading = asked.read(&self.part)?;
        asked.progress(0.1, "reading the trace");
        // What is live was allocated at any time before.
        let window = reading.trace.window(&Scope { from_ns: None, ..reading.scope })?;
        asked.go_on()?;
        asked.progress(0.6, "following memory");
        let (mut processes, mut sites) = (Vec::new(), Vec::new());
        for process in users(&window) {
            let followed = Followed::follow(&window, process, reading.span);
            sites.extend(followed.sites());
            processes.push(process_memory(&window, process, reading.span, &followed));
            asked.go_on()?;
        }
        sites.sort_by(|one, other| (other.live_bytes, &one.place).cmp(&(one.live_bytes, &other.place)));
        let mut page: Vec<MemorySite> =
            sites.into_iter().skip(self.paging.offset()?).take(self.paging.limit()? + 1).collect();
        let next = self.paging.cut(&mut page)?;
        Ok(MemoryUse { basis: Basis::read(&reading)?, processes, sites: page, next })
    }
}

/// Processes that are asked about and that allocate or free.
fn users(window: &Window) -> Vec<ProcessId> {
    let is_asked = |process: &ProcessId| {
        let pid = window.processes.get(process).map(|process| process.pid);
        window.pid.is_none_or(|wanted| pid == Some(wanted))
    };
    let is_memory =
        |op| window.ops.get(&op).is_some_and(|op| matches!(op.meaning.class, CallClass::Alloc | CallClass::Free));
    let threads = window.call_sums.iter().filter(|sum| is_memory(sum.op)).map(|sum| sum.thread);
    let threads = threads.chain(window.memory_calls.rows.iter().map(|call| call.thread));
    let mut processes: Vec<ProcessId> = threads
        .filter_map(|thread| window.threads.get(&thread))
        .map(|thread| thread.process)
        .filter(is_asked)
        .collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

fn process_memory(window: &Window, process: ProcessId, span: Span, followed: &Followed<'_>) -> ProcessMemory {
    let counts = unknown::Counts::count(window, process, span);
    let seconds = span.ns() as f64 / 1e9;
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let facts = window.processes.get(&process);
    ProcessMemory {
        pid: facts.map_or(0, |process| process.pid),
        comm: facts.map_or_else(String::new, |process| process.comm.clone()),
        allocations: counts.allocations,
        frees: counts.frees,
        allocations_per_second: per_second(counts.allocations),
        frees_per_second: per_second(counts.frees),
        failed: counts.failed,
        failures: followed.failures(),
        churn: followed.churn(),
        pools: followed.pools(),
        unknown: unknown::reasons(window, process, followed),
    }
}
