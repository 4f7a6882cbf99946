//! Collective operations that do not come about: which ranks are in them, and what the others do instead.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_model::{CallClass, OpId, Phase, PhaseName, StackId, Standstill, ThreadId};
use gpuwhy_window::{Collective, CommunicatorEnd};

use crate::situation::Situation;

/// An operation that is not whole for so long does not come about any more.
const HANG_NS: u64 = 5_000_000_000;

/// Where all ranks have asked, the GPUs may still work: this many times as long as any operation before took.
const TIMES_LONGER: u64 = 10;

/// A thread is still where it was seen last unless that is longer ago. It is looked at every other second.
const LOOKED_AT_NS: u64 = 4_000_000_000;

/// Why an operation does not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ranks have not asked for it.
    NeverEntered,
    /// Ranks ask for different things in the same place.
    Mismatch,
    /// Ranks that have not asked for it wait in another communicator for those who have.
    Circle,
    /// Ranks have given the communicator up, while others wait in it.
    Ended,
    /// Ranks are still in the operation before, which others have left.
    NeverLeft,
    /// All ranks that are known are in it.
    AllStuck,
}

/// An operation that does not come about. Ranks are there with their last operation.
pub(crate) struct Hang<'w> {
    pub kind: Kind,
    /// Who waits, the first to ask first.
    pub waiting: Vec<&'w Collective>,
    /// Who keeps them waiting.
    pub missing: Vec<&'w Collective>,
    /// All ranks of the communicator, in their order, also those that are done with it.
    pub ranks: Vec<&'w Collective>,
    pub waited_ns: u64,
}

/// What a rank has been doing since its last operation.
pub(crate) struct Stand<'w> {
    /// The call or wait that it has been in for long.
    pub standstill: Option<&'w Standstill>,
    /// Where in its program, with weights.
    pub stacks: Vec<(StackId, u64)>,
}

/// Whether ranks may hang in what comes after a program's last work.
pub fn may_hang(phase: &Phase) -> bool {
    phase.name == PhaseName::End && phase.span().ns() >= HANG_NS
}

/// The operations that do not come about, one for each communicator that has any.
pub(crate) fn hangs<'w>(situation: &Situation<'w>) -> Vec<Hang<'w>> {
    let mut communicators: BTreeMap<i64, BTreeMap<u32, &Collective>> = BTreeMap::new();
    for one in &situation.window.collectives.rows {
        communicators.entry(one.communicator).or_default().insert(one.rank, one);
    }
    let of_ranks = |lasts: &BTreeMap<u32, &'w Collective>| lasts.values().copied().collect::<Vec<_>>();
    let found = communicators.values().filter_map(|lasts| find(situation, &of_ranks(lasts)));
    roots(situation, found.collect())
}

/// Whether the ranks of a communicator hang, by the last operation of each.
fn find<'w>(situation: &Situation<'w>, lasts: &[&'w Collective]) -> Option<Hang<'w>> {
    let newest = lasts.iter().map(|last| last.sequence).max()?;
    let (ended, others): (Vec<&Collective>, Vec<&Collective>) =
        lasts.iter().partition(|last| has_ended(situation, last, newest));
    if !ended.is_empty() {
        return given_up(situation, lasts, ended, others);
    }
    let (mut asked, missing): (Vec<&Collective>, Vec<&Collective>) =
        others.into_iter().partition(|last| last.sequence == newest);
    asked.sort_by_key(|last| last.start_ns);
    let waited_ns = waited_ns(situation, lasts, &asked)?;
    let hang = |kind, waiting, missing| Some(Hang { kind, waiting, missing, ranks: lasts.to_vec(), waited_ns });
    let is_inside = |one: &&Collective| is_inside(situation, one);
    let have_left = |one: &&Collective| others_have_left(situation, one);
    if missing.is_empty() && asked.iter().all(|one| one.done_ns.is_none()) {
        let usual = *asked.iter().max_by_key(|one| asked.iter().filter(|other| !differs(one, other)).count())?;
        if asked.iter().any(|one| differs(one, usual)) {
            let (waiting, others) = asked.into_iter().partition(|one| !differs(one, usual));
            return hang(Kind::Mismatch, waiting, others);
        }
    }
    if lasts.iter().all(is_inside) && !lasts.iter().any(have_left) {
        let own = situation.window.collectives.rows.iter().filter(|one| one.communicator == lasts[0].communicator);
        let longest_ns = own.map(|one| one.wait_ns).max().unwrap_or(0);
        let is_over = waited_ns > longest_ns.saturating_mul(TIMES_LONGER);
        return hang(Kind::AllStuck, lasts.to_vec(), Vec::new()).filter(|_| is_over);
    }
    if missing.is_empty() {
        let (inside, left): (Vec<&Collective>, Vec<&Collective>) = asked.into_iter().partition(is_inside);
        let all_others_left = left.iter().all(|one| one.done_ns.is_some());
        return hang(Kind::NeverLeft, Vec::new(), inside).filter(|hang| all_others_left && !hang.missing.is_empty());
    }
    asked.retain(|one| one.done_ns.is_none());
    let are_inside = missing.iter().all(|one| is_inside(one) && have_left(one));
    let kind = if are_inside { Kind::NeverLeft } else { Kind::NeverEntered };
    hang(kind, asked, missing).filter(|hang| !hang.waiting.is_empty())
}

/// How long ranks have been waiting since the last one of all asked, if that is long.
fn waited_ns(situation: &Situation<'_>, lasts: &[&Collective], waiting: &[&Collective]) -> Option<u64> {
    let asked_ns = lasts.iter().map(|last| last.start_ns).max()?;
    let until_ns = waiting.iter().map(|one| alive_until_ns(situation, one.thread)).min()?;
    Some(until_ns.saturating_sub(asked_ns)).filter(|&waited_ns| waited_ns >= HANG_NS)
}

/// Those who go on without a communicator that others have given up wait for nobody.
fn given_up<'w>(
    situation: &Situation<'w>,
    lasts: &[&'w Collective],
    ended: Vec<&'w Collective>,
    others: Vec<&'w Collective>,
) -> Option<Hang<'w>> {
    let waiting: Vec<&Collective> = others.into_iter().filter(|one| is_inside(situation, one)).collect();
    let waited_ns = waited_ns(situation, lasts, &waiting)?;
    Some(Hang { kind: Kind::Ended, waiting, missing: ended, ranks: lasts.to_vec(), waited_ns })
}

/// Whether a rank gave the communicator up before it was done with the operation that others are in.
fn has_ended(situation: &Situation<'_>, last: &Collective, newest: u64) -> bool {
    end_of(situation, last).is_some() && (last.sequence < newest || last.done_ns.is_none())
}

/// How a rank gave the communicator of its last operation up.
pub(crate) fn end_of(situation: &Situation<'_>, last: &Collective) -> Option<CommunicatorEnd> {
    let process = situation.process_id(last.thread)?;
    situation.window.ended_communicators.get(&(last.communicator_id, process)).copied()
}

/// Whether a rank has been waiting ever since it asked for its last operation: for the device, or in another operation.
fn is_inside(situation: &Situation<'_>, last: &Collective) -> bool {
    let awaits = |op: OpId| {
        let meaning = situation.op(op).map(|op| &op.meaning);
        meaning.is_some_and(|meaning| meaning.awaits_work() || meaning.class == CallClass::Collective)
    };
    let waits = |one: &Standstill| one.op.is_some_and(awaits) && one.start_ns >= last.start_ns;
    last.done_ns.is_none() && standstills(situation, last).any(waits)
}

/// Whether other ranks were done with the last operation of a rank.
fn others_have_left(situation: &Situation<'_>, last: &Collective) -> bool {
    let is_same = |one: &&Collective| (one.communicator, one.sequence) == (last.communicator, last.sequence);
    let others = situation.window.collectives.rows.iter().filter(is_same).filter(|one| one.rank != last.rank);
    others.into_iter().any(|one| one.done_ns.is_some())
}

/// Ranks hang in several communicators for one reason: those told are the ones that no other explains.
fn roots<'w>(situation: &Situation<'w>, mut hangs: Vec<Hang<'w>>) -> Vec<Hang<'w>> {
    hangs.sort_by_key(|hang| Reverse(hang.waiting.len()));
    let mut told: Vec<Hang<'w>> = Vec::new();
    while let Some(hang) = hangs.pop() {
        let mut others = hangs.iter_mut().chain(&mut told);
        let Some(other) = others.find(|other| missing_inside(situation, &hang, other).is_some()) else {
            told.push(hang);
            continue;
        };
        if let Some(missing) = missing_inside(situation, other, &hang) {
            (other.kind, other.missing) = (Kind::Circle, missing);
        } else if other.waiting.is_empty() {
            other.waiting = hang.waiting;
        }
    }
    told
}

/// Ranks that have not asked for one operation because they are in another, if that is so of all of them: as they are there.
fn missing_inside<'w>(situation: &Situation<'w>, hang: &Hang<'w>, other: &Hang<'w>) -> Option<Vec<&'w Collective>> {
    if hang.kind != Kind::NeverEntered {
        return None;
    }
    let missing = if other.kind == Kind::NeverEntered { &[][..] } else { &other.missing };
    let inside = || other.waiting.iter().chain(missing).copied();
    let same = |one: &&Collective| {
        let process = situation.process_id(one.thread);
        inside().find(|other| situation.process_id(other.thread) == process)
    };
    hang.missing.iter().map(same).collect()
}

/// What the threads of a rank's process have been in for long, and still are.
fn standstills<'w>(situation: &Situation<'w>, last: &Collective) -> impl Iterator<Item = &'w Standstill> {
    let process = situation.process_id(last.thread);
    let until_ns = alive_until_ns(situation, last.thread);
    let is_own = move |one: &&Standstill| situation.process_id(one.thread) == process;
    let is_there = move |one: &&Standstill| one.seen_ns.saturating_add(LOOKED_AT_NS) >= until_ns;
    situation.window.standstills.iter().filter(is_own).filter(is_there)
}

/// What a rank has been doing since its last operation: the thread that asked for it, unless another one of its process is in
/// a call.
pub(crate) fn stand<'w>(situation: &Situation<'w>, last: &Collective) -> Stand<'w> {
    let by_thread = |one: &&Standstill| (one.op.is_some(), one.thread == last.thread, u64::MAX - one.start_ns);
    let standstill = standstills(situation, last).max_by_key(by_thread);
    let stacks = match standstill {
        Some(Standstill { stack: Some(stack), .. }) => vec![(*stack, 1)],
        Some(one) => seen_running(situation, one.thread, one.start_ns),
        None => seen_running(situation, last.thread, last.start_ns),
    };
    Stand { standstill, stacks }
}

/// Where a thread, or if it was not seen any other of its process, has run since.
fn seen_running(situation: &Situation<'_>, thread: ThreadId, since_ns: u64) -> Vec<(StackId, u64)> {
    let process = situation.process_id(thread);
    let moments = || situation.window.moments.iter().filter(|moment| moment.bucket_ns > since_ns);
    let own: Vec<_> = moments().filter(|one| one.thread == thread).map(|one| (one.stack, one.count)).collect();
    if !own.is_empty() {
        return own;
    }
    let others = moments().filter(|one| situation.process_id(one.thread) == process);
    others.map(|one| (one.stack, one.count)).collect()
}

fn differs(one: &Collective, other: &Collective) -> bool {
    (one.op, one.bytes) != (other.op, other.bytes)
}

fn alive_until_ns(situation: &Situation<'_>, thread: ThreadId) -> u64 {
    let to_ns = situation.window.to_ns;
    let exit = situation.process_id(thread).and_then(|process| situation.exit(process));
    exit.map_or(to_ns, |exit| exit.at_ns.min(to_ns))
}
