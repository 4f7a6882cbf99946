//! One rank of a job asks for collective operations later than the others, and all of them wait for it.
//!
//! # How it is detected
//! A call that takes part in a collective operation tells its communicator, its rank and its place in the order of the
//! communicator. So it is known of each operation who asked for it after half of the ranks had, and how long after that.
//! The rank that was latest in all operations together is named, with what it did from when half of the others had asked
//! until it asked itself, along the wait graph of its own host. In a trace that was merged of several hosts, clocks are
//! brought in line first.
//!
//! # When it is not reported
//! Ranks that are late in turn are balanced, and so is a job that loses less than 2.5 % of its time to one. Ranks that ask
//! within 2 ms of each other ask together. A rank that is late while the others have other work on the GPU holds nobody
//! up: only time that others spend waiting for the GPU counts. A rank whose GPU is done later with one operation may be as
//! much later to the next: that is not its own doing. Operations of which not all ranks were seen say nothing, and neither
//! do delays between hosts whose clocks may be off by as much. A rank that was late a few times has no habit of it, unless
//! these were the last times, and ranks came together before. One that waited for a CPU which other ranks had, or for its
//! own GPU, is low: they may have taken turns. So is one that is 4 ms late at a time or less: not all CPUs are equally fast.
//!
//! # How to fix it
//! Look at that rank: its own cause is the end of the chain. Where it has more work than the others, share the work out
//! differently.

use std::collections::BTreeSet;

use gpuwhy_model::{CallClass, Chain, Evidence, Finding, Place, Role, Severity, TimePart};
use gpuwhy_window::Window;

use super::takers::Takers;
use super::{Check, RULES, Rule, advice, blamed};
use crate::case::{Draft, JobCase, ThreadCase, Verdict, edge, thread_culprit};
use crate::class::WaitClass;
use crate::cohorts::{Cohort, Rank};
use crate::confidence::Backing;
use crate::dispatcher::Dispatcher;
use crate::gpu::Did;
use crate::graph::{self, Activity};
use crate::words::{duration, percent, share};

pub const RULE: Rule = Rule {
    needs: &[CallClass::Collective],
    ..Rule::new("straggler", "One rank is late", include_str!("straggler.rs"), Check::Job(check))
};

/// Fewer operations say nothing about a rank.
const LEAST_OPERATIONS: u64 = 8;

/// A rank that was late less often had bad luck.
const LEAST_LATE: usize = 5;

/// One that has just become late, and was not before, was late so often.
const LEAST_NEW: usize = 2;

/// How many times as late as others usually are.
const TIMES_LATER: u64 = 3;

/// Ranks that are late by this part of the latest one's time are late as well.
const ALSO_LATE: f64 = 0.5;

/// A rank that costs others less of their time is as good as the others.
const LEAST_SHARE: f64 = 0.025;

/// A rank that is later at a time, on average, has more to do than others or is held up.
const LEAST_AT_A_TIME_NS: u64 = 4_000_000;

const FIX: &[&str] = &["Look at what holds that rank up, or give it less to do than the others."];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let window = case.situation.window;
    let mut cohorts: Vec<&Cohort> = case.situation.cohorts.iter().collect();
    cohorts.sort_by_key(|cohort| std::cmp::Reverse(cohort.latest().map(|rank| rank.late_ns)));
    // The same ranks may have several communicators: who is late is late in all of them.
    let mut told = BTreeSet::new();
    let mut verdicts = Vec::new();
    for &cohort in &cohorts {
        let Some(late) = late(window, cohort) else { continue };
        if told.insert(case.situation.process_id(late.thread)) {
            let late = Late::find(case, cohort, late);
            verdicts.extend(cohort.ranks.iter().filter_map(|rank| waits(case, &late, rank)));
        }
    }
    if verdicts.is_empty() {
        let why = if cohorts.is_empty() {
            "ranks asked for no collective operations"
        } else {
            "no rank was later than the others"
        };
        verdicts.push(Verdict::ruled_out(RULE.cause, why.to_owned()));
    }
    verdicts
}

fn late<'c>(window: &Window, cohort: &'c Cohort) -> Option<&'c Rank> {
    let late = cohort.latest()?;
    let is_habit = cohort.operations >= LEAST_OPERATIONS && late.times_late() >= LEAST_LATE;
    let is_told = is_habit || window.unusual.is_some() && late.times_late() >= LEAST_NEW;
    (is_told && late.late_ns > cohort.usual_ns(late)?.saturating_mul(TIMES_LATER)).then_some(late)
}

/// The rank that others wait for, and what it did meanwhile.
struct Late<'c> {
    rank: &'c Rank,
    cohort: &'c Cohort,
    /// In words.
    doing: String,
    /// Its GPU worked for it meanwhile, or it waited for a CPU that other ranks had: whether it has more to do than others,
    /// or they took turns, is not known.
    is_shared: bool,
    /// What its own records say about that.
    own: Option<Finding>,
    places: Vec<Place>,
}

impl<'c> Late<'c> {
    fn find(case: &JobCase<'_, '_>, cohort: &'c Cohort, rank: &'c Rank) -> Self {
        let situation = case.situation;
        let blame = graph::blame_times(situation, rank.thread, &rank.late, is_inside);
        let culprit = blame.culprit(situation);
        let is_gpus = share(blame.gpu_worked_ns, blame.total_ns) > 0.5;
        let Some(culprit) = culprit.filter(|_| !is_gpus) else {
            let doing = if is_gpus { "waiting for its own GPU" } else { "not watched" };
            return Self { rank, cohort, doing: doing.to_owned(), is_shared: is_gpus, own: None, places: Vec::new() };
        };
        let is_shared = culprit.main_activity() == Activity::Runqueue && !is_kept_from_its_cpu(case, cohort, rank);
        let own = own_cause(case, rank, culprit.main_activity());
        let places = match &own {
            Some(own) => own.r#where.clone(),
            None => blamed::culprit_places(situation, &culprit, rank.thread),
        };
        let doing = blamed::doing(situation, &culprit);
        Self { rank, cohort, doing, is_shared, own, places: places.iter().map(as_culprits).collect() }
    }
}

/// What another rank has of it.
fn waits(case: &JobCase<'_, '_>, late: &Late<'_>, rank: &Rank) -> Option<Verdict> {
    let situation = case.situation;
    let waiting_ns = |thread: &&Dispatcher<'_>| thread.part_ns(TimePart::WaitingForGpu);
    let Late { rank: last, cohort, doing, own, .. } = late;
    let thread = of_rank(case, rank).max_by_key(waiting_ns).filter(|_| rank.number != last.number)?;
    let lost_ns = last.late_ns.min(waiting_ns(&thread));
    let victim = ThreadCase { situation, dispatchers: case.dispatchers, thread, meanwhile: &[] };
    let op = situation.op(last.op).map_or("a collective operation", |op| op.name.as_str());
    let (name, last_name, of) = (victim.name(), situation.name(last.thread), cohort.ranks.len());
    if victim.share(lost_ns) < LEAST_SHARE {
        return None;
    }
    let waited = format!("{name}, rank {}, waited {} for other ranks after {op}", rank.number, duration(lost_ns));
    let is_late = |rank: &&Rank| rank.late_ns as f64 >= ALSO_LATE * last.late_ns as f64;
    let also = match cohort.ranks.iter().filter(is_late).count() {
        0 | 1 => String::new(),
        2 => "; so did another rank".to_owned(),
        several => format!("; so did {} more ranks", several - 1),
    };
    let came = format!(
        "rank {} of {of}, {last_name}, asked after half of the ranks in {} of {} operations, by {} in all{also}",
        last.number,
        last.late_operations,
        cohort.operations,
        duration(last.late_ns)
    );
    let did = format!("rank {} was {doing} meanwhile", last.number);
    let mut chain = Chain::starting(edge(waited, Evidence::Inferred, lost_ns, Vec::new()))
        .then(edge(came, Evidence::Observed, last.late_ns, last.cited()))
        .then(edge(did, Evidence::Observed, last.late_ns, Vec::new()));
    for one in own.iter().flat_map(|own| own.chain.edges()) {
        chain = chain.then(one.clone());
    }
    let waited = percent(victim.share(lost_ns));
    let summary = format!(
        "Rank {} of {of} is late: {name} waited {waited} of its time for {last_name}, which was {doing}.",
        last.number
    );
    Some(victim.judge(Draft {
        culprit: Some(thread_culprit(situation, last.thread, format!("rank {} of {of}, {doing}", last.number))),
        fix: own.as_ref().map_or_else(|| advice(FIX), |own| own.fix.clone()),
        places: late.places.clone(),
        calls_affected: last.late_operations,
        backing: Backing { share: 1.0, records: last.late_operations },
        most_severe: if late.is_shared || last.at_a_time_ns() <= LEAST_AT_A_TIME_NS {
            Severity::Low
        } else {
            Severity::High
        },
        ..Draft::new(RULE.cause, lost_ns, summary, chain)
    }))
}

/// The threads of a rank that feed a GPU.
fn of_rank<'s, 'w>(case: &'s JobCase<'s, 'w>, rank: &Rank) -> impl Iterator<Item = &'s Dispatcher<'w>> {
    let process = case.situation.process_id(rank.thread);
    case.dispatchers.iter().filter(move |thread| thread.process_id == process)
}

/// Whether somebody who is no rank of the job had the CPU that a rank waited for. Ranks on too few CPUs take turns, and those
/// of a virtual machine wait for its host.
fn is_kept_from_its_cpu(case: &JobCase<'_, '_>, cohort: &Cohort, rank: &Rank) -> bool {
    let situation = case.situation;
    let takers = Takers::find(situation, rank.thread);
    let is_rank =
        |thread| cohort.ranks.iter().any(|one| situation.process_id(one.thread) == situation.process_id(thread));
    let is_known = share(takers.known_ns(), takers.recorded_ns) > 0.5;
    is_known && takers.most(situation).is_some_and(|most| !is_rank(most.thread))
}

/// Waits among the threads of a program that feed a GPU in turn. What others do to it is a cause of its own.
fn is_inside(class: WaitClass) -> bool {
    matches!(class, WaitClass::Handover | WaitClass::Gil)
}

/// The finding about the late rank that explains what it mostly did.
fn own_cause(case: &JobCase<'_, '_>, late: &Rank, activity: Activity) -> Option<Finding> {
    let did = if activity == Activity::Running { Did::Compute } else { activity.into() };
    let mut worst: Option<Finding> = None;
    for thread in of_rank(case, late) {
        for rule in RULES.iter().filter(|rule| rule.is_problem && rule.meanwhile.contains(&did)) {
            let Check::Thread(check) = rule.check else { continue };
            let &JobCase { situation, dispatchers } = case;
            let own = ThreadCase { situation, dispatchers, thread, meanwhile: rule.meanwhile };
            let Verdict::Found(found) = check(&own) else { continue };
            if worst.as_ref().is_none_or(|worst| found.impact.lost_ns > worst.impact.lost_ns) {
                worst = Some(*found);
            }
        }
    }
    worst
}

/// What the late rank's victim is there is the culprit here.
fn as_culprits(place: &Place) -> Place {
    Place { role: Role::Culprit, ..place.clone() }
}
