//! Follows the memory of one process from its first allocation to the end of the window.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_analysis::ledger::{Entry, Ledger, layer, memory_calls};
use gpuwhy_model::{Call, CallClass, Histogram, MemoryKind, ProcessId, Reference, Span};
use gpuwhy_window::{LoadedStack, Op, Window};

use super::{Churn, FailedAllocation, Fragmentation, MemorySite, Point, Pool, SourcePlace};

/// The most points of a series.
const POINTS: u64 = 200;

/// The first part of so many is for warming up.
const WARM_UP: u64 = 6;

const MOST_FAILURES: usize = 10;
const SECOND_NS: u64 = 1_000_000_000;

type PoolKey = (Option<u16>, MemoryKind);

pub struct Followed<'w> {
    window: &'w Window,
    process: ProcessId,
    span: Span,
    warm_ns: u64,
    ledger: Ledger<'w>,
    pools: BTreeMap<PoolKey, PoolSums>,
    sites: BTreeMap<(PoolKey, SourcePlace), SiteSums>,
    churned: (u64, u64, Histogram),
    /// Frees of what was not known to be allocated.
    pub orphans: u64,
    pub allocations: u64,
    pub frees: u64,
}

#[derive(Default)]
struct PoolSums {
    live: u64,
    live_when_warm: Option<u64>,
    peak: (u64, u64),
    points: BTreeMap<u64, (u64, u64)>,
}

#[derive(Default)]
struct SiteSums {
    live: u64,
    live_when_warm: Option<u64>,
    count: u64,
    bytes: u64,
}

impl<'w> Followed<'w> {
    pub fn follow(window: &'w Window, process: ProcessId, span: Span) -> Self {
        let calls: Vec<&Call> = memory_calls(window, process).collect();
        let from_ns = calls.first().map_or(span.from_ns, |call| call.start_ns).max(span.from_ns);
        let mut followed = Self {
            window,
            process,
            span,
            warm_ns: from_ns + span.to_ns.saturating_sub(from_ns) / WARM_UP,
            ledger: Ledger::default(),
            pools: BTreeMap::new(),
            sites: BTreeMap::new(),
            churned: (0, 0, Histogram::default()),
            orphans: 0,
            allocations: 0,
            frees: 0,
        };
        let (before, after): (Vec<&Call>, Vec<&Call>) =
            calls.into_iter().partition(|call| call.start_ns < followed.warm_ns);
        before.into_iter().for_each(|call| followed.take(call));
        followed.warm_up_is_over();
        after.into_iter().for_each(|call| followed.take(call));
        followed
    }

    fn take(&mut self, call: &'w Call) {
        match self.ledger.take(self.window.ops.get(&call.op), call) {
            Entry::Allocated { bytes, replaced } => {
                self.allocations += 1;
                if let Some(gone) = replaced {
                    self.gone(gone, call.start_ns);
                }
                self.came(call, bytes);
            }
            Entry::Freed(gone) => {
                self.frees += 1;
                self.churn_of(gone, call.start_ns);
                self.gone(gone, call.start_ns);
            }
            Entry::Orphan => {
                self.frees += 1;
                self.orphans += 1;
            }
            Entry::Nothing => {}
        }
    }

    fn came(&mut self, call: &Call, bytes: u64) {
        let (pool, place) = (self.pool_of(call), self.place_of(call));
        let site = self.sites.entry((pool, place)).or_default();
        site.live = site.live.saturating_add(bytes);
        (site.count, site.bytes) = (site.count + 1, site.bytes.saturating_add(bytes));
        let sums = self.pools.entry(pool).or_default();
        sums.live = sums.live.saturating_add(bytes);
        note(sums, self.span, call.start_ns);
    }

    fn gone(&mut self, allocated: &Call, at_ns: u64) {
        let bytes = allocated.bytes.unwrap_or(0);
        let (pool, place) = (self.pool_of(allocated), self.place_of(allocated));
        if let Some(site) = self.sites.get_mut(&(pool, place)) {
            site.live = site.live.saturating_sub(bytes);
        }
        if let Some(sums) = self.pools.get_mut(&pool) {
            sums.live = sums.live.saturating_sub(bytes);
            note(sums, self.span, at_ns);
        }
    }

    fn churn_of(&mut self, allocated: &Call, at_ns: u64) {
        if allocated.start_ns >= self.warm_ns {
            let (count, bytes, lifetimes) = &mut self.churned;
            *count += 1;
            *bytes = bytes.saturating_add(allocated.bytes.unwrap_or(0));
            lifetimes.add(Histogram::index(at_ns.saturating_sub(allocated.start_ns)), 1);
        }
    }

    fn warm_up_is_over(&mut self) {
        self.pools.values_mut().for_each(|pool| pool.live_when_warm = Some(pool.live));
        self.sites.values_mut().for_each(|site| site.live_when_warm = Some(site.live));
    }

    fn pool_of(&self, call: &Call) -> PoolKey {
        let memory = self.window.ops.get(&call.op).and_then(|op| op.meaning.memory);
        (call.device, memory.unwrap_or(MemoryKind::Device))
    }

    fn place_of(&self, call: &Call) -> SourcePlace {
        let stack = call.stack_id.and_then(|stack| self.window.stacks.get(&stack));
        if let Some(frame) = stack.and_then(LoadedStack::site_frame) {
            let function = (!frame.function.is_empty()).then(|| frame.function.clone());
            return SourcePlace {
                file: frame.file.clone().or_else(|| frame.module.clone()),
                line: frame.line,
                function,
            };
        }
        let caller = call.caller.and_then(|caller| self.window.modules.get(&caller));
        SourcePlace { file: caller.cloned(), ..SourcePlace::default() }
    }

    fn growth(&self, live: u64, live_when_warm: Option<u64>) -> Option<f64> {
        let ns = self.span.to_ns.saturating_sub(self.warm_ns);
        let grown = live as f64 - live_when_warm.unwrap_or(0) as f64;
        (ns >= SECOND_NS).then(|| grown / (ns as f64 / 60e9))
    }

    pub fn churn(&self) -> Churn {
        let (count, bytes, lifetimes) = &self.churned;
        let seconds = self.span.to_ns.saturating_sub(self.warm_ns) as f64 / 1e9;
        Churn {
            count: *count,
            bytes: *bytes,
            per_second: if seconds > 0.0 { *count as f64 / seconds } else { 0.0 },
            median_lifetime_ns: lifetimes.quantile_ns(0.5),
        }
    }

    pub fn pools(&self) -> Vec<Pool> {
        self.pools.iter().map(|(key, sums)| self.pool(*key, sums)).collect()
    }

    fn pool(&self, key: PoolKey, sums: &PoolSums) -> Pool {
        let live: Vec<&Call> = self.ledger.live().filter(|call| self.pool_of(call) == key).collect();
        let point = |(&at_ns, &(live_bytes, peak_bytes)): (&u64, &(u64, u64))| Point { at_ns, live_bytes, peak_bytes };
        Pool {
            device: key.0,
            kind: key.1,
            live_bytes: sums.live,
            live_count: live.len() as u64,
            peak_bytes: sums.peak.0,
            peak_at_ns: sums.peak.1,
            growth_bytes_per_minute: self.growth(sums.live, sums.live_when_warm),
            series: sums.points.iter().map(point).collect(),
            fragmentation: fragmentation(&live),
        }
    }

    pub fn sites(&self) -> Vec<MemorySite> {
        let mut live: BTreeMap<(PoolKey, SourcePlace), (u64, u64, Reference)> = BTreeMap::new();
        for call in self.ledger.live() {
            let key = (self.pool_of(call), self.place_of(call));
            let (count, oldest_ns, newest) = live.entry(key).or_insert((0, u64::MAX, call.reference()));
            *count += 1;
            (*oldest_ns, *newest) = ((*oldest_ns).min(call.start_ns), (*newest).max(call.reference()));
        }
        let pid = self.window.processes.get(&self.process).map_or(0, |process| process.pid);
        let site = |(key, sums): (&(PoolKey, SourcePlace), &SiteSums)| {
            let living = live.get(key);
            MemorySite {
                pid,
                device: key.0.0,
                kind: key.0.1,
                place: key.1.clone(),
                live_bytes: sums.live,
                live_count: living.map_or(0, |one| one.0),
                oldest_ns: living.map(|one| one.1),
                newest_ref: living.map(|one| one.2),
                growth_bytes_per_minute: self.growth(sums.live, sums.live_when_warm),
                allocations: sums.count,
                allocated_bytes: sums.bytes,
            }
        };
        self.sites.iter().map(site).collect()
    }

    pub fn failures(&self) -> Vec<FailedAllocation> {
        let layer = layer(self.window, self.process);
        let is_failed = |call: &&Call| {
            let op = self.window.ops.get(&call.op);
            call.ret_code != 0
                && call.start_ns >= self.span.from_ns
                && op.is_some_and(|op| op.meaning.class == CallClass::Alloc && Some(op.layer) == layer)
                && self.window.process_id(call.thread) == Some(self.process)
        };
        let calls = self.window.calls.rows.iter().chain(&self.window.memory_calls.rows).filter(is_failed);
        let latest: BTreeMap<u64, &Call> = calls.map(|call| (call.start_ns, call)).collect();
        latest.into_values().rev().take(MOST_FAILURES).map(|call| self.failure(call)).collect()
    }

    fn failure(&self, call: &Call) -> FailedAllocation {
        FailedAllocation {
            r#ref: call.reference(),
            timestamp_ns: call.start_ns,
            op: self.window.ops.get(&call.op).map_or_else(String::new, |op| op.name.clone()),
            bytes: call.bytes,
            ret_code: call.ret_code,
            place: self.place_of(call),
        }
    }

    /// Functions of the process that allocate in a way that addresses do not show.
    pub fn unfollowed(&self) -> BTreeSet<&'w str> {
        let own = self.window.call_sums.iter().filter(|sum| self.window.process_id(sum.thread) == Some(self.process));
        let ops = own.filter_map(|sum| self.window.ops.get(&sum.op));
        let is_unfollowed = |op: &&Op| op.meaning.class == CallClass::Alloc && !op.meaning.is_followed;
        ops.filter(is_unfollowed).map(|op| op.name.as_str()).collect()
    }
}

/// Remembers what is live at the end of the point that a moment belongs to, and the most.
fn note(sums: &mut PoolSums, span: Span, at_ns: u64) {
    if sums.live > sums.peak.0 {
        sums.peak = (sums.live, at_ns);
    }
    let length_ns = span.ns().div_ceil(POINTS).max(1);
    // What came before the window is where it begins.
    let slot = at_ns.saturating_sub(span.from_ns) / length_ns;
    let end_ns = if at_ns < span.from_ns { span.from_ns } else { span.from_ns + (slot + 1) * length_ns };
    let point = sums.points.entry(end_ns.min(span.to_ns)).or_default();
    *point = (sums.live, point.1.max(sums.live));
}

/// Of live memory in the order of addresses.
fn fragmentation(live: &[&Call]) -> Option<Fragmentation> {
    let ranges: Vec<(u64, u64)> =
        live.iter().filter_map(|call| Some((call.address?, call.address?.saturating_add(call.bytes?)))).collect();
    let (first, end) = (ranges.first()?.0, ranges.iter().map(|range| range.1).max()?);
    let bytes: u128 = ranges.iter().map(|(from, to)| u128::from(to - from)).sum();
    let gaps = ranges.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].1)).filter(|gap| *gap > 0);
    let span_bytes = end.saturating_sub(first);
    Some(Fragmentation {
        span_bytes,
        live_share: (bytes as f64 / span_bytes.max(1) as f64).min(1.0),
        gaps: gaps.clone().count() as u64,
        largest_gap_bytes: gaps.max().unwrap_or(0),
    })
}
