use std::collections::BTreeMap;

use clap::Args;
use gpuwhy_analysis::{DispatchThread, DispatchThreads, StepParts};
use gpuwhy_model::{Breakdown, Part as TimeOf, Span, ThreadId, TimePart, UnixNs};
use gpuwhy_window::ThreadSecond;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// Where the time of each thread that feeds a GPU went: launching, waiting for the GPU, for input, for a lock, for a
/// CPU and so on. In all, over time, and in its median and its slowest step. The parts add up.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Waits {
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
    /// The most points of the series over time [default: 60]. None is shorter than a second.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=500))]
    #[schemars(range(min = 1, max = 500))]
    #[serde(default)]
    pub buckets: Option<u32>,
}

const DEFAULT_BUCKETS: u32 = 60;
const MOST_BUCKETS: u32 = 500;

/// Clocks are kept for about a second each, so a finer series would be made up.
const SHORTEST_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct WhereTimeWent {
    #[serde(flatten)]
    pub basis: Basis,
    /// How long each bucket of a series is; the last one may be cut short.
    pub bucket_length_ns: u64,
    /// Those that launch work regularly.
    pub threads: Vec<ThreadTime>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ThreadTime {
    #[serde(flatten)]
    pub breakdown: Breakdown,
    /// Over time, in buckets of equal length that begin with the window.
    pub series: Vec<Bucket>,
    /// How many steps a bucket holds: less than 1 where a step is longer than a bucket.
    pub steps_per_bucket: Option<f64>,
    pub median_step: Option<StepTime>,
    pub slowest_step: Option<StepTime>,
    /// Share of its calls that have a record of their own. In steps, those without one count as application code.
    pub calls_recorded: f64,
}

/// What happened in one bucket. A thread that came later or left earlier has less wall time than it is long.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Bucket {
    #[schemars(with = "UnixNs")]
    pub from_ns: u64,
    /// What the parts add up to.
    pub wall_ns: u64,
    pub parts: Vec<TimeOf>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct StepTime {
    #[schemars(with = "UnixNs")]
    pub at_ns: u64,
    /// What the parts add up to.
    pub ns: u64,
    pub parts: Vec<TimeOf>,
}

impl From<StepParts> for StepTime {
    fn from(StepParts { at_ns, ns, parts }: StepParts) -> Self {
        Self { at_ns, ns, parts }
    }
}

impl Ask for Waits {
    const NAME: &'static str = "waits";

    type Answer = WhereTimeWent;

    fn ask(&self, asked: &Asked<'_>) -> Result<WhereTimeWent, AskError> {
        let reading = asked.read(&self.part)?;
        let length_ns = self.bucket_length(reading.span)?;
        asked.progress(0.1, "reading the trace");
        let window = reading.window()?;
        asked.go_on()?;
        asked.progress(0.6, "adding up");
        let all = DispatchThreads::new(&window);
        let basis = Basis::saying(&reading, all.coverage());
        let is_asked = |thread: &DispatchThread<'_, '_>| self.tid.is_none_or(|tid| thread.breakdown().tid == tid);
        let (offset, limit) = (self.paging.offset()?, self.paging.limit()?);
        let mut threads: Vec<_> = all.iter().filter(is_asked).skip(offset).take(limit + 1).collect();
        let next = self.paging.cut(&mut threads)?;
        let ids: Vec<ThreadId> = threads.iter().map(DispatchThread::id).collect();
        let mut seconds = reading.trace.thread_seconds(&reading.scope, &ids)?;
        let buckets = Buckets { span: reading.span, length_ns };
        let time = |thread: &DispatchThread<'_, '_>| {
            time_of(thread, &seconds.remove(&thread.id()).unwrap_or_default(), &buckets)
        };
        let threads = threads.iter().map(time).collect();
        Ok(WhereTimeWent { basis, bucket_length_ns: length_ns, threads, next })
    }
}

impl Waits {
    fn bucket_length(&self, span: Span) -> Result<u64, AskError> {
        let most = match self.buckets.unwrap_or(DEFAULT_BUCKETS) {
            most @ 1..=MOST_BUCKETS => u64::from(most),
            _ => return Err(AskError::parameter("buckets", format_args!("it is from 1 to {MOST_BUCKETS}"))),
        };
        Ok(span.ns().div_ceil(most).max(SHORTEST_NS))
    }
}

fn time_of(thread: &DispatchThread<'_, '_>, seconds: &[ThreadSecond], buckets: &Buckets) -> ThreadTime {
    let breakdown = thread.breakdown();
    let per_bucket = |median_ns: u64| buckets.length_ns as f64 / median_ns.max(1) as f64;
    ThreadTime {
        steps_per_bucket: breakdown.steps.as_ref().map(|steps| per_bucket(steps.median_ns)),
        breakdown,
        series: buckets.series(seconds.iter().map(|second| (second, thread.second(second)))),
        median_step: thread.median_step().map(StepTime::from),
        slowest_step: thread.slowest_step().map(StepTime::from),
        calls_recorded: thread.recorded(),
    }
}

struct Buckets {
    span: Span,
    length_ns: u64,
}

impl Buckets {
    /// Spreads seconds over the buckets that they reach into.
    fn series<'s>(&self, seconds: impl Iterator<Item = (&'s ThreadSecond, Vec<TimeOf>)>) -> Vec<Bucket> {
        let mut sums: BTreeMap<u64, BTreeMap<TimePart, u64>> = BTreeMap::new();
        for (second, parts) in seconds {
            let shares = self.shares(second.times.bucket_ns, second.times.wall_ns);
            for TimeOf { name, ns } in parts {
                let mut left_ns = ns;
                for (at, &(bucket, share)) in shares.iter().enumerate() {
                    let is_last = at + 1 == shares.len();
                    let own_ns = if is_last { left_ns } else { ((ns as f64 * share) as u64).min(left_ns) };
                    left_ns -= own_ns;
                    let sum = sums.entry(bucket).or_default().entry(name).or_default();
                    *sum = sum.saturating_add(own_ns);
                }
            }
        }
        sums.into_iter().map(|(at, parts)| self.bucket(at, &parts)).collect()
    }

    fn bucket(&self, at: u64, parts: &BTreeMap<TimePart, u64>) -> Bucket {
        let parts: Vec<TimeOf> =
            parts.iter().filter(|(_, ns)| **ns > 0).map(|(&name, &ns)| TimeOf { name, ns }).collect();
        Bucket {
            from_ns: self.span.from_ns.saturating_add(at.saturating_mul(self.length_ns)),
            wall_ns: parts.iter().fold(0, |sum, part| sum.saturating_add(part.ns)),
            parts,
        }
    }

    /// The buckets that a time reaches into, and which share of it each has. What lies outside belongs to the outermost.
    fn shares(&self, from_ns: u64, wall_ns: u64) -> Vec<(u64, f64)> {
        let last = self.span.ns().saturating_sub(1) / self.length_ns;
        let index = |ns: u64| (ns.saturating_sub(self.span.from_ns) / self.length_ns).min(last);
        let (from, to) = (index(from_ns), index(from_ns.saturating_add(wall_ns.saturating_sub(1))));
        let edge_ns = |at: u64| self.span.from_ns.saturating_add(at.saturating_mul(self.length_ns));
        let share = |at: u64| {
            let begin_ns = if at == from { from_ns } else { edge_ns(at) };
            let end_ns = if at == to { from_ns.saturating_add(wall_ns) } else { edge_ns(at + 1) };
            end_ns.saturating_sub(begin_ns) as f64 / wall_ns.max(1) as f64
        };
        (from..=to).map(|at| (at, share(at))).collect()
    }
}
