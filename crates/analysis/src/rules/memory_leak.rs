//! GPU memory that is allocated and not freed only grows.
//!
//! # How it is detected
//! Allocations and frees are matched by address, which gives the bytes that are live at any time. The time from the first
//! allocation to the end, or its later half, is divided into six parts: the least that was live must be more in each of
//! them than in the one before, but for one, by a tenth in all, and the growth must not flatten. Eight allocations must stay, or four if
//! they are large: frameworks with a cache ask the driver rarely. What grows is told by where it was allocated from and
//! in which sizes.
//!
//! # When it is not reported
//! Memory that grows while the program warms up and then stays. A framework's cache that fills. Growth most of which is a
//! few pieces of different sizes, as libraries take them for themselves in the first steps. Growth that could be frees
//! whose records were lost. Memory that PyTorch hands out of its cache without asking the driver is not seen, so that the
//! place is the one that asked the driver, and not always the one that keeps the memory.
//!
//! # How to fix it
//! Look at what keeps references at the place that is named: lists of losses with their graphs (`loss.item()` or
//! `.detach()` before appending), growing caches, buffers that are allocated in every step.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter;

use gpuwhy_model::{
    Call, CallClass, Chain, Evidence, Finding, Impact, ModuleId, Place, ProcessId, Reference, Role, Severity, StackId,
    ThreadId,
};
use gpuwhy_window::Op;

use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge, found, own_process, victim};
use crate::confidence::{self, Backing};
use crate::ledger::{self, Entry, Ledger};
use crate::places;
use crate::situation::Situation;
use crate::words::{bytes, percent};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Alloc, CallClass::Free],
    ..Rule::new("memory-leak", "GPU memory only grows", include_str!("memory_leak.rs"), Check::Job(check))
};

/// Equal parts of the time; the first one is for warming up.
const PARTS: usize = 6;
const LEAST_GROWTH: f64 = 0.1;
/// Growth of so much is grave.
const GRAVE_GROWTH: f64 = 1.0;
/// The later half must grow by this share of what the earlier one did.
const NOT_FLATTENING: f64 = 0.5;
/// Against so little live memory everything would be growth.
const LEAST_LIVE: u64 = 1 << 20;
/// Allocations that stay, fewer of which are no pattern; and fewer still, where they come to so much.
const LEAST_LEAKED: u64 = 8;
const LEAST_LARGE: u64 = 4;
const LARGE: u64 = 256 << 20;

const FIX: &[&str] = &[
    "Look at what keeps GPU memory at that place: lists of tensors with their graphs, growing caches.",
    "Free it, or allocate once and reuse it.",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let situation = case.situation;
    situation.job().into_iter().map(|process| of_process(situation, process)).collect()
}

fn of_process(situation: &Situation<'_>, process: ProcessId) -> Verdict {
    let rule_out = |why: String| Verdict::ruled_out(RULE.cause, why);
    if situation.window.memory_calls.spans.len() != 1 {
        return rule_out("not known: single allocations were not kept, or are too many to follow".to_owned());
    }
    let memory = Memory::follow(situation, process);
    let Some(growth) = memory.growth() else {
        return rule_out(format!(
            "{} are live at the end, and that did not grow steadily",
            bytes(memory.ledger.bytes())
        ));
    };
    let leaked = memory.leaked();
    // Where frees of memory that nobody allocated are found, as many allocations without a free are to be expected.
    let missing = missing_frees(situation, process, memory.frees).max(memory.orphans);
    let is_large = growth.last.saturating_sub(growth.first) >= LARGE;
    let least = if is_large { LEAST_LARGE } else { LEAST_LEAKED };
    if leaked.count < least || leaked.count <= missing.saturating_mul(2) {
        return rule_out(format!("{missing} frees have no record, which explains what seems to stay"));
    }
    if !leaked.is_pattern {
        return rule_out("most of what stays was taken in a few pieces of different sizes: no pattern".to_owned());
    }
    match memory.last_thread {
        Some(thread) => Verdict::Found(Box::new(finding(situation, thread, &growth, &leaked))),
        None => rule_out("nothing was allocated".to_owned()),
    }
}

/// Frees that were counted and have no row: memory that seems to stay may be theirs.
fn missing_frees(situation: &Situation<'_>, process: ProcessId, rows: u64) -> u64 {
    let layer = ledger::layer(situation.window, process);
    let is_free = |op: &Op| Some(op.layer) == layer && op.meaning.is_followed_free();
    let own =
        situation.window.call_sums.iter().filter(|sum| {
            situation.process_id(sum.thread) == Some(process) && situation.op(sum.op).is_some_and(is_free)
        });
    own.fold(0u64, |all, sum| all.saturating_add(sum.calls)).saturating_sub(rows)
}

/// Where an allocation was made, and its size.
type Site = (Option<ModuleId>, u64);

/// Live memory of a process over time.
struct Memory<'w> {
    from_ns: u64,
    half_part_ns: u64,
    ledger: Ledger<'w>,
    /// Of each half of a part with calls.
    least: [Option<u64>; 2 * PARTS],
    /// At the end of each of those.
    last: [u64; 2 * PARTS],
    frees: u64,
    /// Frees of what was not known to be allocated, after warming up.
    orphans: u64,
    last_thread: Option<ThreadId>,
}

struct Growth {
    /// Live after warming up, and at the end.
    first: u64,
    last: u64,
}

struct Leaked {
    count: u64,
    /// Where most of it was allocated.
    site: Option<Site>,
    site_count: u64,
    site_bytes: u64,
    is_pattern: bool,
    cited: Vec<Reference>,
    /// The stacks of what stays of that site, with its bytes.
    stacks: Vec<(StackId, u64)>,
}

impl<'w> Memory<'w> {
    fn follow(situation: &Situation<'w>, process: ProcessId) -> Self {
        let window = situation.window;
        let own: Vec<&Call> = ledger::memory_calls(window, process).collect();
        let from_ns = own.first().map_or(window.from_ns, |call| call.start_ns);
        let to_ns = window.to_ns.max(from_ns);
        let mut memory = Self {
            from_ns,
            half_part_ns: to_ns.saturating_sub(from_ns) / (2 * PARTS) as u64 + 1,
            ledger: Ledger::default(),
            least: [None; 2 * PARTS],
            last: [0; 2 * PARTS],
            frees: 0,
            orphans: 0,
            last_thread: None,
        };
        own.into_iter().for_each(|call| memory.take(situation, call));
        memory
    }

    fn take(&mut self, situation: &Situation<'w>, call: &'w Call) {
        match self.ledger.take(situation.op(call.op), call) {
            Entry::Allocated { .. } => self.last_thread = Some(call.thread),
            Entry::Freed(_) => self.frees += 1,
            Entry::Orphan => {
                self.frees += 1;
                self.orphans += u64::from(call.start_ns >= self.warm_ns());
            }
            Entry::Nothing => {}
        }
        let live = self.ledger.bytes();
        let part = (call.start_ns.saturating_sub(self.from_ns) / self.half_part_ns) as usize;
        if let Some(least) = self.least.get_mut(part) {
            *least = Some(least.map_or(live, |least| least.min(live)));
            self.last[part] = live;
        }
    }

    fn warm_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.half_part_ns.saturating_mul(2))
    }

    /// `None` unless it grows all the time, or from the middle on.
    fn growth(&self) -> Option<Growth> {
        let mut live = 0;
        let mut least = [0; 2 * PARTS];
        for (part, (found, end)) in self.least.iter().zip(self.last).enumerate() {
            // Nothing changes in a part without calls.
            least[part] = found.unwrap_or(live);
            live = if found.is_some() { end } else { live };
        }
        let all: Vec<u64> = least.chunks(2).filter_map(|part| part.iter().copied().min()).collect();
        steady_growth(&all).or_else(|| steady_growth(&least[PARTS..]))
    }

    /// What was allocated after warming up and is still there.
    fn leaked(&self) -> Leaked {
        let warm_ns = self.warm_ns();
        let mut sites: BTreeMap<Site, u64> = BTreeMap::new();
        let mut count = 0;
        for live in self.ledger.live().filter(|live| live.start_ns >= warm_ns) {
            *sites.entry(site_of(live)).or_default() += 1;
            count += 1;
        }
        let top = sites.iter().max_by_key(|entry| total(*entry));
        let site = top.map(|(site, _)| *site);
        let of_site = self.ledger.live().filter(|live| Some(site_of(live)) == site && live.start_ns >= warm_ns);
        let of_site: Vec<&Call> = of_site.collect();
        let mut cited: Vec<Reference> = of_site.iter().map(|live| live.reference()).collect();
        cited.sort_unstable();
        Leaked {
            count,
            site,
            site_count: top.map_or(0, |(_, count)| *count),
            site_bytes: top.map_or(0, total),
            is_pattern: is_pattern(&sites),
            cited: cited.into_iter().rev().take(3).collect(),
            stacks: of_site.iter().filter_map(|live| Some((live.stack_id?, live.bytes?))).collect(),
        }
    }
}

/// All bytes of a site.
fn total((site, count): (&Site, &u64)) -> u64 {
    site.1.saturating_mul(*count)
}

/// Is most of it of sites that came again and again, or is it at least in many pieces, which may grow?
fn is_pattern(sites: &BTreeMap<Site, u64>) -> bool {
    let all: u64 = sites.iter().map(total).sum();
    let repeated: u64 = sites.iter().filter(|(_, count)| **count >= LEAST_LARGE).map(total).sum();
    if repeated.saturating_mul(2) >= all {
        return true;
    }
    let mut sizes: Vec<u64> = sites.iter().flat_map(|(site, count)| iter::repeat_n(site.1, *count as usize)).collect();
    sizes.sort_unstable();
    let largest = sizes.iter().rev().take(LEAST_LEAKED as usize);
    largest.sum::<u64>() < all - all / 4
}

/// `None` unless each part but one has more than the one before, and it goes on to the end.
fn steady_growth(least: &[u64]) -> Option<Growth> {
    let warm = least.get(1..)?;
    let (&first, &middle, &last) = (warm.first()?, warm.get(warm.len() / 2)?, warm.last()?);
    let pairs = || least.windows(2).map(|pair| pair[1].cmp(&pair[0]));
    let still = pairs().filter(|change| change.is_eq()).count();
    let grows = still <= 1 && !pairs().any(Ordering::is_lt) && pairs().next_back().is_some_and(Ordering::is_gt);
    let goes_on = (last.saturating_sub(middle)) as f64 >= NOT_FLATTENING * middle.saturating_sub(first) as f64;
    let is_enough = last.saturating_sub(first) as f64 >= LEAST_GROWTH * first.max(LEAST_LIVE) as f64;
    (grows && goes_on && is_enough).then_some(Growth { first, last })
}

fn site_of(call: &Call) -> Site {
    (call.caller, call.bytes.unwrap_or(0))
}

fn finding(situation: &Situation<'_>, thread: ThreadId, growth: &Growth, leaked: &Leaked) -> Finding {
    let grown = growth.last.saturating_sub(growth.first) as f64 / growth.first.max(LEAST_LIVE) as f64;
    let module = leaked.site.and_then(|(caller, _)| caller).and_then(|caller| situation.window.modules.get(&caller));
    let size = bytes(leaked.site.map_or(0, |(_, size)| size));
    let from_to = format!("from {} to {}", bytes(growth.first), bytes(growth.last));
    let (name, count) = (situation.name(thread), leaked.count);
    let chain = chain(&name, &from_to, leaked, &size, module.map_or("an unknown place", String::as_str));
    let severity = if grown >= GRAVE_GROWTH { Severity::High } else { Severity::Medium };
    let confidence = confidence::weigh(&chain, Backing { share: 1.0, records: count }, situation.window);
    let summary = format!(
        "GPU memory of {name} only grows: {from_to} (+{}), {count} allocations, mostly of {size}, stay.",
        percent(grown)
    );
    Finding {
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: count, calls_total: count },
        victim: victim(situation, thread),
        culprit: Some(own_process(situation, thread, format!("{} allocations of {size}", leaked.site_count))),
        r#where: places(situation, leaked),
        fix: advice(FIX),
        ..found(RULE.cause, severity, confidence, summary, chain)
    }
}

fn places(situation: &Situation<'_>, leaked: &Leaked) -> Vec<Place> {
    let places = places::of_stacks(situation, Role::Victim, leaked.stacks.iter().copied());
    if places.is_empty() {
        return leaked.site.and_then(|(caller, _)| places::of_module(situation, caller)).into_iter().collect();
    }
    places
}

fn chain(name: &str, from_to: &str, leaked: &Leaked, size: &str, place: &str) -> Chain {
    let all = bytes(leaked.site_bytes);
    let stays = format!("{} allocations of {size} from {place} were not freed, {all} in all", leaked.site_count);
    let grew = format!("live memory of {name} grew {from_to}");
    let cited = || leaked.cited.clone();
    Chain::starting(edge(grew, Evidence::Observed, 0, cited())).then(edge(stays, Evidence::Observed, 0, cited()))
}
