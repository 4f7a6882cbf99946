//! The GPU idles while the host has work for it, and nothing else that was found explains it.
//!
//! # How it is detected
//! The GPU says itself that it had nothing to do for at least a fifth of the time. Threads that launch did so all the time,
//! and were on the CPU, waiting for one, or held up by locks, disks and memory: they had work. What they waited for others,
//! slept, or waited for the GPU is taken off, and so is what any other cause takes. The rest is told, with what is missing to
//! tell more: mostly it lies in many times of less than a millisecond between launches, which calls do not show. The lines
//! are those that the thread was mostly seen at.
//!
//! # When it is not reported
//! Beside findings that explain the same time. When the threads wait for somebody to ask for something, for input, or for
//! the network: who has nothing to do holds nothing back. While a program starts or ends, where processes use the GPU that are
//! not traced, and where the GPU does not say how much it works and for whom. It is always low: what nothing explains is no
//! alarm, and many a healthy program launches no faster.
//!
//! # How to fix it
//! What the thread does between its launches is what the GPU waits for: make that less (CUDA graphs, `torch.compile`, larger
//! batches) or let another thread do it. A larger `--budget` sees more launches one by one, and a profile of the thread says
//! what it does between them.

use std::collections::BTreeSet;

use gpuwhy_model::{Chain, Culprit, Evidence, Finding, Impact, Role, Severity, TimePart, Victim};

use super::{Check, Rule, advice};
use crate::case::{RestCase, Verdict, edge, found, victim};
use crate::class::WaitClass;
use crate::confidence::{self, Backing};
use crate::dispatcher::Dispatcher;
use crate::gpu::{Did, Gpu};
use crate::places;
use crate::words::{part, percent, rounded, share};

pub const RULE: Rule = Rule::new(
    "gpu-starved",
    "The GPU idles while the host has work for it",
    include_str!("gpu_starved.rs"),
    Check::Rest(check),
);

/// Less than this share of the time is not worth a word: something is always left over.
const NOTABLE: f64 = 0.2;

/// Whoever launches in this part of the seconds does so all the time; shorter windows do not show it.
const ALL_THE_TIME: f64 = 0.9;
const LEAST_SECONDS: u64 = 3;
const SECOND_NS: u64 = 1_000_000_000;

/// Functions and waits of which this part was seen were seen.
const SEEN: f64 = 0.98;

/// So much of the idle time with nobody watching is what is missing.
const MUCH_UNWATCHED: f64 = 0.3;

/// A thread that waits like this has nothing to do for the GPU, as far as is known.
const WITHOUT_WORK: &[WaitClass] = &[
    WaitClass::Gpu,
    WaitClass::Input,
    WaitClass::Handover,
    WaitClass::Network,
    WaitClass::Request,
    WaitClass::Child,
    WaitClass::Output,
    WaitClass::Sleep,
    WaitClass::Other,
];

const FIX: &[&str] = &[
    "What the thread does between its launches is what the GPU waits for: do less of it (CUDA graphs, torch.compile, larger batches).",
    "Trace with a larger --budget, so that more launches are seen one by one, and profile that thread.",
];

fn check(case: &RestCase<'_, '_>) -> Vec<Verdict> {
    let told = case.gpus.iter().filter_map(|gpu| finding(case, gpu));
    let mut verdicts: Vec<Verdict> = told.map(|finding| Verdict::Found(Box::new(finding))).collect();
    if verdicts.is_empty() {
        let why = "no GPU says that it idled while those had work who give it some, beyond what else was found";
        verdicts.push(Verdict::ruled_out(RULE.cause, why.to_owned()));
    }
    verdicts
}

fn finding(case: &RestCase<'_, '_>, gpu: &Gpu) -> Option<Finding> {
    let (situation, window) = (case.situation, case.situation.window);
    // Its word counts where all who use it are traced; where it does not say who does, nobody knows.
    window.gpu_words.get(&gpu.device)?.processes?;
    let idle = gpu.word?.interval()[0];
    let users: Vec<&Dispatcher<'_>> = case.dispatchers.iter().filter(|user| feeds(case, user, gpu)).collect();
    let busiest = users.iter().copied().max_by(|one, other| had_work(one).total_cmp(&had_work(other)))?;
    let without_work = (1.0 - had_work(busiest) - busiest.share(busiest.part_ns(TimePart::WaitingForGpu))).max(0.0);
    let explained = explained(case, &users);
    let starved = had_work(busiest).min(idle - without_work) - explained;
    if starved < NOTABLE || !launch_all_the_time(case, &users) {
        return None;
    }
    let (number, name) = (gpu.device.number, situation.name(busiest.id));
    let host = window.hosts.get(usize::from(gpu.device.host)).map(|host| host.name.clone());
    let on = host.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
    let ns = part(busiest.wall_ns(), starved);
    let said = format!("GPU {number}{on} says that it was idle {} of the time at least", percent(idle));
    let worked = format!("{name} launched all the time, and had work {} of its time", percent(had_work(busiest)));
    let missing = format!("what it did while the GPU was idle is not known: {}", missing(case, busiest));
    let chain = Chain::starting(edge(said, Evidence::Explicit, ns, Vec::new()))
        .then(edge(worked, Evidence::Observed, ns, Vec::new()))
        .then(edge(missing, Evidence::Missing, ns, Vec::new()));
    let summary = format!(
        "GPU {number}{on} idles {} of the time while {name} has work for it, and nothing else that was seen explains it.",
        percent(starved)
    );
    Some(Finding {
        impact: Impact {
            lost_ns: ns,
            share: rounded(starved),
            calls_affected: busiest.launches,
            calls_total: busiest.calls_made(),
        },
        victim: victim(situation, busiest.id),
        culprit: Some(Culprit { host, detail: format!("GPU {number} waits for {name}"), ..Culprit::default() }),
        r#where: places::of_samples(situation, busiest.id, Role::Victim),
        fix: advice(FIX),
        ..found(RULE.cause, Severity::Low, confidence::weigh(&chain, Backing::SUMS, window), summary, chain)
    })
}

fn feeds(case: &RestCase<'_, '_>, user: &Dispatcher<'_>, gpu: &Gpu) -> bool {
    let host = user.process_id.map(|process| case.situation.window.host_of(process));
    let device = victim(case.situation, user.id).device.unwrap_or(0);
    host == Some(gpu.device.host) && device == u32::from(gpu.device.number)
}

/// The share of its time in which a thread evidently had something to do.
fn had_work(user: &Dispatcher<'_>) -> f64 {
    let waiting_ns = WITHOUT_WORK.iter().fold(0u64, |sum, &class| sum.saturating_add(user.waits.ns(class)));
    1.0 - user.share(waiting_ns.max(user.part_ns(TimePart::WaitingForGpu)).min(user.wall_ns()))
}

/// What other findings take of the time of those who use the GPU.
fn explained(case: &RestCase<'_, '_>, users: &[&Dispatcher<'_>]) -> f64 {
    let who = |victim: &Victim| (victim.host.clone(), victim.pid);
    let processes: BTreeSet<_> = users.iter().map(|user| who(&victim(case.situation, user.id))).collect();
    let is_theirs = |finding: &&Finding| processes.contains(&who(&finding.victim));
    case.found.iter().copied().filter(is_theirs).map(|finding| finding.impact.share).sum()
}

fn launch_all_the_time(case: &RestCase<'_, '_>, users: &[&Dispatcher<'_>]) -> bool {
    let situation = case.situation;
    let tells = |op| situation.is_launch(op) || situation.is_wait(op);
    let own = situation
        .window
        .call_seconds
        .iter()
        .filter(|second| second.calls > 0 && tells(second.op) && users.iter().any(|user| user.id == second.thread));
    let with_work: BTreeSet<u64> = own.map(|second| second.bucket_ns).collect();
    let all = situation.window.to_ns.saturating_sub(situation.window.from_ns).div_ceil(SECOND_NS);
    all >= LEAST_SECONDS && with_work.len() as f64 >= ALL_THE_TIME * all as f64
}

/// What would have to be seen to say more.
fn missing(case: &RestCase<'_, '_>, user: &Dispatcher<'_>) -> String {
    let launches = || user.calls.iter().filter(|sum| case.situation.is_launch(sum.op));
    let seen = share(launches().map(|sum| sum.seen).sum(), launches().map(|sum| sum.calls).sum());
    if seen < SEEN {
        return format!("{} of its launches were seen one by one", percent(seen));
    }
    let read = case.situation.stretch_share();
    if read < SEEN {
        return format!("the waits of {} of the time were read", percent(read));
    }
    if share(user.idle.did_ns(&[Did::Unknown]), user.idle.ns) >= MUCH_UNWATCHED {
        return "it was not watched in much of that time".to_owned();
    }
    "these times lie between launches and are too short to be told from the GPU's work".to_owned()
}
