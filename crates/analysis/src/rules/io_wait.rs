//! The thread was blocked on block I/O.
//!
//! # How it is detected
//! The kernel counts a blocked thread as waiting for a device. The requests whose completion woke it say which device, and
//! how long each took. Meanwhile the use of the device is summed up by process. A process that has at least half of the
//! device's time, and more than the victim, is to blame; otherwise the victim's own reading is. The kernel's own threads
//! hand over requests of others, so they are left out.
//!
//! # When it is not reported
//! Page faults that wait for a device are `page-fault`, and I/O inside memory reclaim is `memory-reclaim`. A DataLoader
//! worker that waits for a disk shows as `input-starved` of the thread it feeds.
//!
//! # How to fix it
//! Read ahead and in larger pieces, in another thread; keep the data in memory or on a faster device; move the other
//! user of the device elsewhere, or limit it (`io.max`, `ionice`).

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Culprit, Evidence, IoUsage, Reference};

use super::{Check, Rule, advice};
use crate::case::{Draft, ThreadCase, Verdict, edge};
use crate::class::WaitClass;
use crate::confidence::Backing;
use crate::gpu::Did;
use crate::waits::ClassSum;
use crate::words::{duration, percent, share};

pub const RULE: Rule = Rule {
    meanwhile: &[Did::Wait(WaitClass::Io)],
    ..Rule::new("io-wait", "Waiting for a disk", include_str!("io_wait.rs"), Check::Thread(check))
};

/// Share of a device's time from which on another process is to blame.
const MOST_OF_A_DEVICE: f64 = 0.5;

const FIX_OWN: &[&str] = &[
    "Read ahead in another thread, in larger pieces, or from memory.",
    "Move the data to a faster device if reading is what the job does.",
];
const FIX_OTHER: &[&str] =
    &["Move the other process to another device, or limit it (io.max, ionice).", "Read ahead, or from memory."];

/// The requests of the victim on the device it waited for most.
#[derive(Default)]
struct Requests {
    device: String,
    count: u64,
    ns: u64,
    cited: Vec<Reference>,
}

fn check(case: &ThreadCase<'_, '_>) -> Verdict {
    let sum = case.thread.waits.get(WaitClass::Io);
    if let Some(verdict) = case.too_little(RULE.cause, sum.ns) {
        return verdict;
    }
    let requests = requests(case);
    let other = requests.as_ref().and_then(|requests| saturating(case, &requests.device));
    let chain = chain(case, &sum, requests.as_ref());
    let told = match &other {
        Some(other) => others_io(case, sum.ns, chain, other),
        None => own_io(case, sum.ns, chain, requests.as_ref()),
    };
    case.judge(Draft {
        places: case.wait_places(|class| class == WaitClass::Io),
        calls_affected: sum.count,
        backing: Backing { share: sum.backed, records: sum.records },
        ..told
    })
}

fn chain(case: &ThreadCase<'_, '_>, sum: &ClassSum, requests: Option<&Requests>) -> Chain {
    let (name, lost) = (case.name(), percent(case.share(sum.ns)));
    let waited = format!("{name} waited {} for block I/O ({lost} of its time)", duration(sum.ns));
    let chain = Chain::starting(edge(waited, Evidence::Observed, sum.ns, sum.cited.clone()));
    let Some(found) = requests else { return chain };
    let what = format!("its requests were at the device: {}", described(found));
    chain.then(edge(what, Evidence::Observed, found.ns, found.cited.clone()))
}

fn own_io(case: &ThreadCase<'_, '_>, lost_ns: u64, chain: Chain, requests: Option<&Requests>) -> Draft {
    let device = requests.map_or("a disk", |requests| requests.device.as_str());
    let lost = percent(case.share(lost_ns));
    let summary = format!("{} waited {lost} of its time for its own I/O on {device}.", case.name());
    let culprit = case.own_process(requests.map_or_else(String::new, described));
    Draft { culprit: Some(culprit), fix: advice(FIX_OWN), ..Draft::new(RULE.cause, lost_ns, summary, chain) }
}

fn others_io(case: &ThreadCase<'_, '_>, lost_ns: u64, chain: Chain, other: &Other<'_>) -> Draft {
    let Other { usage, of_device, evidence } = other;
    let (device, share) = (&usage.device, percent(*of_device));
    let culprit = process_culprit(case, usage, &format!("{share} of {device}'s time"));
    let who = format!("{} ({})", culprit.comm, culprit.pid);
    let chain =
        chain.then(edge(format!("{who} had {share} of the time of {device}"), *evidence, usage.busy_ns, Vec::new()));
    let lost = percent(case.share(lost_ns));
    let summary = format!("{} waited {lost} of its time for {device}, which {who} kept busy.", case.name());
    Draft { culprit: Some(culprit), fix: advice(FIX_OTHER), ..Draft::new(RULE.cause, lost_ns, summary, chain) }
}

fn described(requests: &Requests) -> String {
    let mean_ns = requests.ns / requests.count.max(1);
    format!("{} requests on {} that took {} each", requests.count, requests.device, duration(mean_ns))
}

fn requests(case: &ThreadCase<'_, '_>) -> Option<Requests> {
    let mut devices: BTreeMap<&str, Requests> = BTreeMap::new();
    let own = case.situation.window.io_requests.rows.iter().filter(|request| request.waiter == case.thread.id);
    for request in own {
        let found = devices.entry(&request.device).or_default();
        found.count += 1;
        found.ns = found.ns.saturating_add(request.duration_ns);
        if found.cited.len() < 3 {
            found.cited.push(request.reference());
        }
    }
    let (device, mut found) = devices.into_iter().max_by_key(|(_, found)| found.ns)?;
    found.device = device.to_owned();
    Some(found)
}

/// Another process that has most of a device's time.
struct Other<'w> {
    usage: &'w IoUsage,
    of_device: f64,
    evidence: Evidence,
}

fn saturating<'w>(case: &ThreadCase<'_, 'w>, device: &str) -> Option<Other<'w>> {
    let busy = |users: &[&IoUsage]| users.iter().fold(0u64, |sum, usage| sum.saturating_add(usage.busy_ns));
    let window = case.situation.window;
    let host = case.thread.process_id.map(|process| window.host_of(process));
    let is_there = |usage: &&IoUsage| usage.device == device && Some(window.host_of(usage.process)) == host;
    let of_device = window.io_usage.iter().filter(is_there);
    let (kernel, programs): (Vec<&IoUsage>, Vec<&IoUsage>) =
        of_device.partition(|usage| case.situation.is_kernel_thread(usage.process));
    let (own, others): (Vec<&IoUsage>, Vec<&IoUsage>) =
        programs.iter().partition(|usage| Some(usage.process) == case.thread.process_id);
    let others = others.into_iter().filter(|usage| !case.situation.is_tracers(usage.process));
    let usage = others.max_by_key(|usage| usage.busy_ns)?;
    let of_device = share(usage.busy_ns, busy(&programs));
    // What the kernel's threads handed over was somebody's, too.
    let evidence = if busy(&kernel) > busy(&programs) { Evidence::Inferred } else { Evidence::Observed };
    let is_to_blame = of_device >= MOST_OF_A_DEVICE && usage.busy_ns > busy(&own);
    is_to_blame.then_some(Other { usage, of_device, evidence })
}

fn process_culprit(case: &ThreadCase<'_, '_>, usage: &IoUsage, detail: &str) -> Culprit {
    let window = case.situation.window;
    let process = window.processes.get(&usage.process);
    Culprit {
        host: window.host(usage.process).map(|host| host.name.clone()),
        pid: process.map_or(0, |process| process.pid),
        tid: 0,
        comm: process.map_or_else(String::new, |process| process.comm.clone()),
        detail: format!("{detail}, {} requests", usage.requests),
    }
}
