//! Ranks of a job wait for a collective operation that does not come about.
//!
//! # How it is detected
//! Every call that takes part in a collective operation tells its communicator, its rank and its place in the order of the
//! communicator. A call that does not return is looked at every other second. For five seconds or more no rank has asked for
//! another operation, and one of these is so:
//! - a rank that took part in the operations before has not asked for the last one;
//! - ranks ask for different things in the same place of the order;
//! - a rank has destroyed or aborted the communicator, and others still wait in it;
//! - a rank has not asked because it waits in another communicator for those who wait for it;
//! - a rank is still in an operation that others are done with;
//! - all ranks have asked, and none is done after ten times the time that any operation before took.
//!
//! Each rank is told with the call or wait that it is in, and its line.
//!
//! # When it is not reported
//! A job that is done, or does something else, has asked for its last operation on all ranks and waits for none. Ranks that
//! have all given a communicator up, as a job does that starts anew after a failure, do not hang in it. A rank that
//! was never seen in a communicator may not be traced: it is not blamed.
//!
//! # How to fix it
//! Look at what the rank that is missing does instead: an exception that was caught, a branch that depends on data or on the
//! rank, a loop that is longer on one rank than on the others. Ranks must ask for the same operations in the same order, and
//! for those of several communicators as well. Where all ranks are in the same operation, the fabric or a GPU does not do its
//! part.

use gpuwhy_model::{CallClass, Chain, Edge, Evidence, Finding, Impact, Place, RecordKind, Reference, Role, Severity};
use gpuwhy_window::Collective;

use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge, found, thread_culprit, victim};
use crate::confidence::{self, Backing};
use crate::hangs::{Hang, Kind, end_of, hangs, stand};
use crate::places;
use crate::situation::Situation;
use crate::words::{duration, rounded, share};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Collective],
    explains_away: &["straggler"],
    is_the_end: true,
    ..Rule::new(
        "collective-hang",
        "Ranks wait for an operation that does not come",
        include_str!("collective_hang.rs"),
        Check::Job(check),
    )
};

/// Of so many ranks it is told what each one does.
const MOST_RANKS: usize = 16;

const ORDER: &str =
    "Ranks must ask for the same operations in the same order: look for branches that depend on data or on the rank.";

/// What to do about each kind.
const fn fix(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::NeverEntered => &[
            ORDER,
            "Look at what the missing rank does instead; an exception that is caught on one rank is the usual reason.",
        ],
        Kind::Mismatch => &[ORDER],
        Kind::Ended => &[
            "Look at why that rank gave up: an exception, a time-out of its watchdog, an error that NCCL_DEBUG=INFO shows.",
            "Let all ranks give up together: a time-out on each of them ends the wait for a rank that is gone.",
        ],
        Kind::Circle => &[
            "Let all ranks use their communicators in the same order, or wait for the operations of one before the next.",
        ],
        Kind::NeverLeft | Kind::AllStuck => &[
            "Look at the fabric between the ranks and at their GPUs: links, errors of ports, Xid messages in the kernel log.",
            "Run with NCCL_DEBUG=INFO to see which connection the operation waits for.",
        ],
    }
}

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let of_all = |hang: &Hang<'_>| {
        // Who is inside alone waits for itself.
        let victims = if hang.waiting.is_empty() { &hang.missing } else { &hang.waiting };
        let is_missing = |one: &Collective| hang.missing.iter().any(|missing| missing.rank == one.rank);
        let (missing, others): (Vec<&Collective>, Vec<_>) = hang.ranks.iter().partition(|one| is_missing(one));
        let ranks = missing.into_iter().chain(others).take(MOST_RANKS);
        let ranks: Vec<_> = ranks.map(|one| does(case.situation, one)).collect();
        let found = |one: &&Collective| Verdict::Found(Box::new(finding(case.situation, hang, &ranks, one)));
        victims.iter().map(found).collect::<Vec<_>>()
    };
    let mut verdicts: Vec<Verdict> = hangs(case.situation).iter().flat_map(of_all).collect();
    if verdicts.is_empty() {
        let why = "no rank has left others alone with an operation".to_owned();
        verdicts.push(Verdict::ruled_out(RULE.cause, why));
    }
    verdicts
}

/// What it is for one of those who wait. `ranks` is what each rank does, and where.
fn finding(
    situation: &Situation<'_>,
    hang: &Hang<'_>,
    ranks: &[(Edge, Option<Place>)],
    waiter: &Collective,
) -> Finding {
    let window = situation.window;
    let waited_ns = hang.waited_ns;
    let mut chain =
        Chain::starting(edge(waits(situation, hang, waiter), Evidence::Observed, waited_ns, refs(&hang.waiting)));
    if let Some(missing) = hang.missing.first() {
        let lacks = lacks(situation, hang, missing);
        chain = chain.then(edge(lacks, Evidence::Observed, waited_ns, refs(&hang.missing)));
    }
    let culprits = hang.missing.first().map(|one| stand(situation, one).stacks);
    let mut places = places::of_stacks(situation, Role::Culprit, culprits.into_iter().flatten());
    for (does, place) in ranks {
        chain = chain.then(does.clone());
        let is_told = |place: &&Place| places.iter().any(|told| (&told.file, told.line) == (&place.file, place.line));
        let new = place.as_ref().filter(|place| !is_told(place)).cloned();
        places.extend(new);
    }
    let wall_ns = window.to_ns.saturating_sub(window.from_ns);
    let confidence = confidence::weigh(&chain, Backing::SUMS, window);
    let what = what(hang.kind);
    let culprit = hang
        .missing
        .first()
        .map(|one| thread_culprit(situation, one.thread, format!("rank {} of {} {what}", one.rank, one.ranks)));
    Finding {
        impact: Impact {
            lost_ns: waited_ns,
            share: rounded(share(waited_ns, wall_ns).min(1.0)),
            calls_affected: hang.waiting.len().max(1) as u64,
            calls_total: u64::from(waiter.ranks),
        },
        victim: victim(situation, waiter.thread),
        culprit,
        r#where: places,
        fix: advice(fix(hang.kind)),
        ..found(RULE.cause, Severity::High, confidence, summary(situation, hang, waiter), chain)
    }
}

/// What those who are missing do.
fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::NeverEntered => "does not take part",
        Kind::Mismatch => "asks for something else",
        Kind::Ended => "has given the communicator up",
        Kind::Circle => "waits in another communicator for those who wait for it",
        Kind::NeverLeft => "does not come out of an operation that others are done with",
        Kind::AllStuck => "is in it",
    }
}

fn summary(situation: &Situation<'_>, hang: &Hang<'_>, waiter: &Collective) -> String {
    let (op, waited) = (op(situation, waiter), duration(hang.waited_ns));
    let Some(missing) = hang.missing.first() else {
        return match hang.waiting.len() {
            all if all == waiter.ranks as usize => {
                format!("All {all} ranks have asked for {op}, and none is done with it after {waited}.")
            }
            known => format!(
                "{known} of {} ranks, all that are traced, have asked for {op}, and none is done with it after {waited}.",
                waiter.ranks
            ),
        };
    };
    let (rank, ranks, what) = (missing.rank, missing.ranks, what(hang.kind));
    match hang.waiting.len() {
        0 => format!("Rank {rank} of {ranks} {what}: {op}, for {waited}."),
        1 => format!("Rank {rank} of {ranks} {what}: another one waits in {op} for {waited}."),
        others => format!("Rank {rank} of {ranks} {what}: {others} others wait in {op} for {waited}."),
    }
}

fn waits(situation: &Situation<'_>, hang: &Hang<'_>, waiter: &Collective) -> String {
    let Collective { ranks, sequence, .. } = waiter;
    let (op, waited) = (op(situation, waiter), duration(hang.waited_ns));
    match hang.waiting.len() {
        0 => format!("all {ranks} ranks have asked for operation {sequence} of their communicator, {op}"),
        asked => format!(
            "{asked} of {ranks} ranks have asked for operation {sequence} of their communicator, {op}, and wait for {waited}"
        ),
    }
}

fn lacks(situation: &Situation<'_>, hang: &Hang<'_>, missing: &Collective) -> String {
    let others = match hang.missing.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let Collective { rank, sequence, bytes, .. } = missing;
    let (op, who) = (op(situation, missing), format!("rank {rank}, {}{others},", situation.name(missing.thread)));
    match hang.kind {
        Kind::Mismatch => format!("{who} asks for {op} of {bytes} bytes there"),
        Kind::Circle => {
            format!(
                "{who} has not: it waits in operation {sequence} of another communicator, {op}, for those who wait here"
            )
        }
        Kind::Ended => {
            let end = end_of(situation, missing).and_then(|end| situation.op(end.op));
            let call = end.map_or("a call", |op| op.name.as_str());
            format!("{who} has ended the communicator by {call}: its last one is operation {sequence}, {op}")
        }
        Kind::NeverLeft => format!("{who} is still in operation {sequence}, {op}, which others are done with"),
        Kind::NeverEntered | Kind::AllStuck => format!("{who} has not: its last one is operation {sequence}, {op}"),
    }
}

/// What a rank has been doing since its last operation, in words, and where.
fn does(situation: &Situation<'_>, one: &Collective) -> (Edge, Option<Place>) {
    let stand = stand(situation, one);
    let exit = situation.process_id(one.thread).and_then(|process| situation.exit(process));
    let (doing, ns) = match stand.standstill {
        Some(standstill) => {
            let ns = standstill.seen_ns.saturating_sub(standstill.start_ns);
            let op = standstill.op.and_then(|op| situation.op(op)).map(|op| op.name.as_str());
            let reason = standstill.reason.map(|reason| reason.as_str());
            let doing = match (op, reason) {
                (Some(op), _) => format!("has been in {op} for {}", duration(ns)),
                (None, Some("other") | None) => format!("has been blocked for {}", duration(ns)),
                (None, Some(reason)) => format!("has been blocked in {reason} for {}", duration(ns)),
            };
            (doing, ns)
        }
        None if let Some(exit) = exit => {
            let ns = situation.window.to_ns.saturating_sub(exit.at_ns);
            (format!("ended {} before", duration(ns)), ns)
        }
        None if stand.stacks.is_empty() => ("was not seen since".to_owned(), 0),
        None => ("was running".to_owned(), 0),
    };
    let place = places::of_stacks(situation, Role::Victim, stand.stacks.into_iter()).into_iter().next();
    let line =
        place.as_ref().and_then(|place| Some(format!(", at {}:{}", place.file.rsplit('/').next()?, place.line?)));
    let what = format!("rank {}, {}, {doing}{}", one.rank, situation.name(one.thread), line.unwrap_or_default());
    (edge(what, Evidence::Observed, ns, Vec::new()), place)
}

fn op<'w>(situation: &Situation<'w>, one: &Collective) -> &'w str {
    situation.op(one.op).map_or("an operation", |op| op.name.as_str())
}

fn refs(ones: &[&Collective]) -> Vec<Reference> {
    ones.iter().take(3).map(|one| RecordKind::Cuda.at(one.start_ns)).collect()
}
