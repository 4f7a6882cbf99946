//! The GPU, or its driver, reports that something is broken.
//!
//! # How it is detected
//! NVIDIA's driver writes what goes wrong into the kernel's log as an Xid: a number, and mostly the process that it is about.
//! The log is read four times a second. NVML says of a GPU, twice a second, whether it still answers, and how many lanes its
//! link to the host has; once a second, which of its links to other GPUs are up and what errors these count, how many errors
//! of its memory could not be corrected, and whether a part of its memory waits for a reset to be replaced, or cannot be.
//! A link to the host is slow when it has fewer lanes than the GPU and its slot can have, or a lower generation while
//! the GPU works. The processes that use the GPU are named.
//!
//! # When it is not reported
//! What was in the log before the trace, and errors from before. Who may not read the kernel's log is not told of Xids. A GPU
//! that has nothing to do lowers the generation of its link on purpose; so only moments count up to which it worked for half
//! a second. A link to another GPU that was never up, and troubles of GPUs that no traced process uses, are nobody's. What the
//! program itself did wrong, such as an access to memory that it does not have, is told with medium severity.
//!
//! # How to fix it
//! NVIDIA's list says what each Xid means. A GPU that has fallen off the bus, or whose memory cannot correct its errors, needs
//! a reset of the GPU or of the host, and is to be taken out of service if that happens again. A link that is slow or down
//! is a matter of seats, risers, slots and bridges; training it anew takes a restart. For what a program did wrong, run it
//! with `compute-sanitizer`.

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Culprit, Evidence, Finding, Severity};
use gpuwhy_window::Xid;

use super::broken::{self, Fault};
use super::{Check, Rule, advice, sufferers};
use crate::case::{JobCase, Verdict, edge, found, victim};
use crate::confidence::{self, Backing};

pub const RULE: Rule = Rule {
    is_the_end: true,
    ..Rule::new("gpu-fault", "The GPU reports a fault", include_str!("gpu_fault.rs"), Check::Job(check))
};

/// The number for a GPU that has fallen off the bus.
const FALLEN_OFF: u32 = 79;

/// What well-known numbers mean, and whether programs cause them themselves.
const MEANINGS: &[(u32, &str, bool)] = &[
    (13, "a kernel of the program failed", true),
    (31, "the program used memory that it does not have", true),
    (43, "the program was ended because of what it did", true),
    (45, "the program was ended, mostly because of an earlier fault", true),
    (48, "an error of its memory could not be corrected", false),
    (61, "its own controller stopped", false),
    (62, "its own controller stopped", false),
    (63, "a part of its memory is to be replaced by a spare one", false),
    (64, "a part of its memory could not be replaced", false),
    (74, "a link to other GPUs failed", false),
    (79, "it has fallen off the bus", false),
    (92, "errors of its memory had to be corrected very often", false),
    (94, "an error of its memory hit this program alone", false),
    (95, "an error of its memory hit everybody", false),
    (119, "its own processor does not answer", false),
    (120, "its own processor failed", false),
];

const FIX: &[&str] = &[
    "Look the number up in NVIDIA's list of Xids, and the time in the kernel's log (dmesg).",
    "A GPU that is broken needs a reset, and is to be taken out of service if it happens again.",
];
/// Processes that are named; others are counted.
const MOST_NAMED: usize = 4;

const FIX_PROGRAM: &[&str] = &["Run the program with compute-sanitizer: it names the kernel and the line that did it."];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let window = case.situation.window;
    let mut alike: BTreeMap<(u16, &str, u32), Vec<&Xid>> = BTreeMap::new();
    for xid in &window.xids {
        alike.entry((xid.host, &xid.device, xid.code)).or_default().push(xid);
    }
    let has_fallen_off = |host: u16, number: u16| {
        let is_it = |device: &str| device.parse().map_or(true, |one: u16| one == number);
        window.xids.iter().any(|xid| xid.code == FALLEN_OFF && xid.host == host && is_it(&xid.device))
    };
    let reported = alike.values().filter_map(|xids| reported(case, xids));
    let errors = window.gpu_health.iter().filter(|(_, health)| health.memory_errors > 0).map(|(device, health)| {
        let what = format!("counted {} errors of its memory that could not be corrected", health.memory_errors);
        (device, Fault { what, part: "", severity: Severity::High, fix: FIX, concerns_host: true })
    });
    let own_word = window.gpu_faults.iter().flat_map(|(device, faults)| {
        // The driver has said so.
        let is_said = faults.lost.is_some() && has_fallen_off(device.host, device.number);
        let faults = if is_said { Vec::new() } else { broken::faults(faults) };
        faults.into_iter().map(move |fault| (device, fault))
    });
    let own_word = errors.chain(own_word);
    let broken =
        own_word.filter_map(|(device, fault)| tell(case, device.host, &device.number.to_string(), None, &fault));
    let mut verdicts: Vec<Verdict> = reported.chain(broken).map(|finding| Verdict::Found(Box::new(finding))).collect();
    if verdicts.is_empty() {
        verdicts.push(Verdict::ruled_out(RULE.cause, "no GPU reported a fault".to_owned()));
    }
    verdicts
}

fn reported(case: &JobCase<'_, '_>, xids: &[&Xid]) -> Option<Finding> {
    let first = xids.first()?;
    let known = MEANINGS.iter().find(|(code, ..)| *code == first.code);
    let meaning = known.map_or_else(String::new, |(_, meaning, _)| format!(" ({meaning})"));
    let times = if xids.len() > 1 { format!(", {} times", xids.len()) } else { String::new() };
    let what = format!("reported Xid {}{meaning}{times}", first.code);
    let is_programs = known.is_some_and(|(.., is_programs)| *is_programs);
    let (severity, fix) = if is_programs { (Severity::Medium, FIX_PROGRAM) } else { (Severity::High, FIX) };
    let pid = xids.iter().find_map(|xid| xid.pid);
    tell(case, first.host, &first.device, pid, &Fault { what, part: "", severity, fix, concerns_host: true })
}

fn tell(case: &JobCase<'_, '_>, host: u16, device: &str, pid: Option<u32>, fault: &Fault) -> Option<Finding> {
    let (situation, window) = (case.situation, case.situation.window);
    let known = device.parse().map_or_else(|_| Vec::new(), |number| sufferers::users(case, host, Some(number)));
    let is_known = !known.is_empty();
    let users = if is_known { known } else { sufferers::users(case, host, None) };
    if users.is_empty() && !fault.concerns_host {
        return None;
    }
    let thread = sufferers::longest(case, host, device.parse().ok(), pid)?;
    let host = window.hosts.get(usize::from(host)).map(|host| host.name.clone());
    let on = host.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
    let (user, what) = (situation.name(thread.id), &fault.what);
    let mut chain = Chain::starting(edge(format!("GPU {device}{on} {what}"), Evidence::Explicit, 0, Vec::new()));
    let others = users.iter().filter(|user| user.process_id != thread.process_id).count();
    if others > 0 {
        let names: Vec<String> = users.iter().take(MOST_NAMED).map(|user| situation.name(user.id)).collect();
        let more =
            if users.len() > MOST_NAMED { format!(" and {} more", users.len() - MOST_NAMED) } else { String::new() };
        chain = chain.then(edge(
            format!("{}{more} use {}", names.join(", "), if is_known { "it" } else { "a GPU" }),
            Evidence::Observed,
            0,
            Vec::new(),
        ));
    }
    let and_others = match others {
        0 => String::new(),
        1 => " and another process".to_owned(),
        _ => format!(" and {others} other processes"),
    };
    let own = victim(situation, thread.id).pid;
    let about = pid.filter(|pid| *pid != own).map_or_else(String::new, |pid| format!(" about process {pid},"));
    let used = if is_known || pid == Some(own) { "it" } else { "a GPU" };
    let about = format!("{about} while {user}{and_others} used {used}");
    Some(Finding {
        victims: u32::try_from(users.len()).unwrap_or(u32::MAX).max(1),
        victim: victim(situation, thread.id),
        culprit: Some(Culprit { host, detail: format!("GPU {device}{}", fault.part), ..Culprit::default() }),
        fix: advice(fault.fix),
        ..found(
            RULE.cause,
            fault.severity,
            confidence::weigh(&chain, Backing::SUMS, window),
            format!("GPU {device}{on} {what}{about}."),
            chain,
        )
    })
}
