//! Ranks of a job wait for a collective operation that does not come about.
//!
//! # How it is detected
//! Every call that takes part in a collective operation tells its communicator, its rank and its place in the order of the
//! communicator. For five seconds or more no rank has asked for another one, and the last one is not whole: a rank that
//! took part in those before has not asked for it, or ranks ask for different things in the same place.
//!
//! # When it is not reported
//! A job that is done, or does something else, has asked for its last operation on all ranks. A rank that was never seen in
//! a communicator may not be traced: it is not blamed. Whether an operation that all ranks have asked for is stuck on the
//! GPU cannot be seen from here.
//!
//! # How to fix it
//! Look at what the rank that is missing does instead: an exception that was caught, a branch that depends on data or on the
//! rank, a loop that is longer on one rank than on the others. Ranks must ask for the same operations in the same order.

use std::collections::BTreeMap;

use gpuwhy_model::{CallClass, Chain, Evidence, Finding, Impact, Place, RecordKind, Role, Severity, StackId, ThreadId};
use gpuwhy_window::Collective;

use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge, found, thread_culprit, victim};
use crate::confidence::{self, Backing};
use crate::places;
use crate::situation::Situation;
use crate::words::{duration, rounded, share};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Collective],
    explains_away: &["straggler"],
    ..Rule::new(
        "collective-hang",
        "Ranks wait for an operation that does not come",
        include_str!("collective_hang.rs"),
        Check::Job(check),
    )
};

/// An operation that is not whole for so long does not come about any more.
const HANG_NS: u64 = 5_000_000_000;

const FIX: &[&str] = &[
    "Ranks must ask for the same operations in the same order: look for branches that depend on data or on the rank.",
    "Look at what the missing rank does instead; an exception that is caught on one rank is the usual reason.",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    // The last operation of each rank.
    let mut communicators: BTreeMap<i64, BTreeMap<u32, &Collective>> = BTreeMap::new();
    for one in &case.situation.window.collectives.rows {
        communicators.entry(one.communicator).or_default().insert(one.rank, one);
    }
    let hangs = communicators.values().filter_map(|lasts| Hang::find(case.situation, lasts));
    let of_all = |hang: Hang<'_>| {
        let found = hang.asked.iter().map(|waiter| Verdict::Found(Box::new(hang.finding(case.situation, waiter))));
        found.collect::<Vec<_>>()
    };
    let mut verdicts: Vec<Verdict> = hangs.flat_map(of_all).collect();
    if verdicts.is_empty() {
        let why = "no rank has left others alone with an operation".to_owned();
        verdicts.push(Verdict::ruled_out(RULE.cause, why));
    }
    verdicts
}

/// An operation that is not whole.
struct Hang<'w> {
    /// Who waits in it, the first to ask first.
    asked: Vec<&'w Collective>,
    /// The last operation of each rank that has not asked for it, or that asks for something else.
    missing: Vec<&'w Collective>,
    is_mismatch: bool,
    waited_ns: u64,
}

impl<'w> Hang<'w> {
    fn find(situation: &Situation<'_>, lasts: &BTreeMap<u32, &'w Collective>) -> Option<Self> {
        let newest = lasts.values().map(|last| last.sequence).max()?;
        let (mut asked, mut missing): (Vec<&Collective>, Vec<&Collective>) =
            lasts.values().copied().partition(|last| last.sequence == newest);
        asked.sort_by_key(|last| last.start_ns);
        let waits_since_ns = lasts.values().map(|last| last.start_ns).max()?;
        let until_ns = asked.iter().map(|one| alive_until_ns(situation, one.thread)).min()?;
        let waited_ns = until_ns.saturating_sub(waits_since_ns);
        let usual = *asked.iter().max_by_key(|one| asked.iter().filter(|other| !differs(one, other)).count())?;
        let is_mismatch = missing.is_empty() && asked.iter().any(|one| differs(one, usual));
        if is_mismatch {
            (asked, missing) = asked.into_iter().partition(|one| !differs(one, usual));
        }
        let is_hang = waited_ns >= HANG_NS && !missing.is_empty();
        is_hang.then_some(Self { asked, missing, is_mismatch, waited_ns })
    }

    /// What it is for one of those who wait.
    fn finding(&self, situation: &Situation<'_>, waiter: &Collective) -> Finding {
        let window = situation.window;
        let missing = self.missing[0];
        let op = |one: &Collective| situation.op(one.op).map_or("an operation", |op| op.name.as_str());
        let waits = format!(
            "{} of {} ranks have asked for operation {} of their communicator, {}, and wait for {}",
            self.asked.len(),
            waiter.ranks,
            waiter.sequence,
            op(waiter),
            duration(self.waited_ns)
        );
        let (name, others) = (situation.name(missing.thread), others(self.missing.len() - 1));
        let lacks = match self.is_mismatch {
            true => format!(
                "rank {}, {name}{others}, asks for {} of {} bytes there",
                missing.rank,
                op(missing),
                missing.bytes
            ),
            false => format!(
                "rank {}, {name}{others}, has not: its last one is operation {}, {}",
                missing.rank,
                missing.sequence,
                op(missing)
            ),
        };
        let refs = |ones: &[&Collective]| ones.iter().take(3).map(|one| RecordKind::Cuda.at(one.start_ns)).collect();
        let chain = Chain::starting(edge(waits, Evidence::Observed, self.waited_ns, refs(&self.asked))).then(edge(
            lacks,
            Evidence::Observed,
            self.waited_ns,
            refs(&self.missing),
        ));
        let what = if self.is_mismatch { "asks for something else" } else { "does not take part" };
        let detail = format!("rank {} of {} {what}", missing.rank, missing.ranks);
        let wall_ns = window.to_ns.saturating_sub(window.from_ns);
        let confidence = confidence::weigh(&chain, Backing::SUMS, window);
        let others = match self.asked.len() {
            1 => "another one waits".to_owned(),
            others => format!("{others} others wait"),
        };
        let summary = format!(
            "Rank {} of {} {what}: {others} in {} for {}.",
            missing.rank,
            missing.ranks,
            op(waiter),
            duration(self.waited_ns)
        );
        Finding {
            impact: Impact {
                lost_ns: self.waited_ns,
                share: rounded(share(self.waited_ns, wall_ns).min(1.0)),
                calls_affected: self.asked.len() as u64,
                calls_total: u64::from(waiter.ranks),
            },
            victim: victim(situation, waiter.thread),
            culprit: Some(thread_culprit(situation, missing.thread, detail)),
            r#where: places_since(situation, missing),
            fix: advice(FIX),
            ..found(RULE.cause, Severity::High, confidence, summary, chain)
        }
    }
}

fn others(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

fn differs(one: &Collective, other: &Collective) -> bool {
    (one.op, one.bytes) != (other.op, other.bytes)
}

fn alive_until_ns(situation: &Situation<'_>, thread: ThreadId) -> u64 {
    let to_ns = situation.window.to_ns;
    let exit = situation.process_id(thread).and_then(|process| situation.exit(process));
    exit.map_or(to_ns, |exit| exit.at_ns.min(to_ns))
}

/// Where the threads of a rank's process were seen after its last operation.
fn places_since(situation: &Situation<'_>, last: &Collective) -> Vec<Place> {
    let process = situation.process_id(last.thread);
    let is_own = |thread: ThreadId| situation.process_id(thread) == process;
    let running =
        situation.window.moments.iter().filter(|moment| moment.bucket_ns > last.start_ns && is_own(moment.thread));
    let running: Vec<(StackId, u64)> = running.map(|moment| (moment.stack, moment.count)).collect();
    let calls = situation.window.calls.rows.iter().rev();
    let latest = calls.filter(|call| is_own(call.thread)).find_map(|call| call.stack_id).map(|stack| (stack, 1));
    let stacks = if running.is_empty() { latest.into_iter().collect() } else { running };
    places::of_stacks(situation, Role::Culprit, stacks.into_iter())
}
