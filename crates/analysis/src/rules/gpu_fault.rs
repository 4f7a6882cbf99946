//! The GPU, or its driver, reports that something is broken.
//!
//! # How it is detected
//! NVIDIA's driver writes what goes wrong into the kernel's log as an Xid: a number, and mostly the process that it is about.
//! The log is read once a second. NVML counts errors of the GPU's memory that could not be corrected; those that are new are
//! told.
//!
//! # When it is not reported
//! What was in the log before the trace, and errors from before. Who may not read the kernel's log is not told of Xids. What
//! the program itself did wrong, such as an access to memory that it does not have, is told with medium severity.
//!
//! # How to fix it
//! NVIDIA's list says what each Xid means. A GPU that has fallen off the bus, or whose memory cannot correct its errors, needs
//! a reset of the GPU or of the host, and is to be taken out of service if that happens again. For what a program did
//! wrong, run it with `compute-sanitizer`.

use std::collections::BTreeMap;

use gpuwhy_model::{Chain, Culprit, Evidence, Finding, Severity};
use gpuwhy_window::Xid;

use super::{Check, Rule, advice, sufferers};
use crate::case::{JobCase, Verdict, edge, found, victim};
use crate::confidence::{self, Backing};

pub const RULE: Rule =
    Rule::new("gpu-fault", "The GPU reports a fault", include_str!("gpu_fault.rs"), Check::Job(check));

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
const FIX_PROGRAM: &[&str] = &["Run the program with compute-sanitizer: it names the kernel and the line that did it."];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let window = case.situation.window;
    let mut alike: BTreeMap<(u16, &str, u32), Vec<&Xid>> = BTreeMap::new();
    for xid in &window.xids {
        alike.entry((xid.host, &xid.device, xid.code)).or_default().push(xid);
    }
    let reported = alike.values().filter_map(|xids| reported(case, xids));
    let broken = window.gpu_health.iter().filter(|(_, health)| health.memory_errors > 0);
    let broken = broken.filter_map(|(device, health)| {
        let what = format!("counted {} errors of its memory that could not be corrected", health.memory_errors);
        tell(case, device.host, &device.number.to_string(), None, &what, Severity::High, FIX)
    });
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
    tell(case, first.host, &first.device, pid, &what, severity, fix)
}

fn tell(
    case: &JobCase<'_, '_>,
    host: u16,
    device: &str,
    pid: Option<u32>,
    what: &str,
    severity: Severity,
    fix: &[&str],
) -> Option<Finding> {
    let (situation, window) = (case.situation, case.situation.window);
    let thread = sufferers::longest(case, host, device.parse().ok(), pid)?;
    let host = window.hosts.get(usize::from(host)).map(|host| host.name.clone());
    let on = host.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
    let user = situation.name(thread.id);
    let chain = Chain::starting(edge(format!("GPU {device}{on} {what}"), Evidence::Explicit, 0, Vec::new()));
    let about = match pid {
        Some(pid) if pid != victim(situation, thread.id).pid => {
            format!(" about process {pid}, while {user} used a GPU")
        }
        _ => format!(" while {user} used it"),
    };
    Some(Finding {
        victim: victim(situation, thread.id),
        culprit: Some(Culprit { host, detail: format!("GPU {device}"), ..Culprit::default() }),
        fix: advice(fix),
        ..found(
            RULE.cause,
            severity,
            confidence::weigh(&chain, Backing::SUMS, window),
            format!("GPU {device}{on} {what}{about}."),
            chain,
        )
    })
}
