//! The GPU is held down: it runs slower than it could, because it is too hot or its power supply asks for it.
//!
//! # How it is detected
//! NVML says once a second why a GPU does not run at its highest speed, and how fast it runs. Counted are the moments in
//! which the reason is heat, or a brake of the hardware. What that costs is how much slower the GPU is than it could be.
//!
//! # When it is not reported
//! A GPU that saves power because it has nothing to do, one whose clocks somebody has set, and one at the limit of its power,
//! as it is at full load, are as they should be. A few moments are nothing to be alarmed by.
//!
//! # How to fix it
//! Look at the fans, at the air that reaches the GPU and at its neighbours (`nvidia-smi -q -d TEMPERATURE,PERFORMANCE`). A
//! brake of the power supply is the host's: its supplies and their limits. One GPU that is hotter than its neighbours under
//! the same load is to be taken out of service.

use gpuwhy_model::{Chain, Culprit, Evidence, Finding, Impact, Severity};
use gpuwhy_window::{Device, GpuHealth};

use super::{Check, Rule, advice, sufferers};
use crate::case::{JobCase, Verdict, edge, found, victim};
use crate::confidence::{self, Backing};
use crate::words::{percent, rounded, share};

pub const RULE: Rule =
    Rule::new("gpu-throttled", "The GPU is held down", include_str!("gpu_throttled.rs"), Check::Job(check));

/// From this part of the moments on it is no accident.
const LEAST_PART: f64 = 0.1;

/// What is lost, as a part of the GPU's speed, and how grave that is.
const HIGH: f64 = 0.2;
const MEDIUM: f64 = 0.05;

/// The reasons, by their bits, in words.
const REASONS: &[(u64, &str)] =
    &[(0x20, "heat"), (0x40, "heat"), (0x80, "a brake of its power supply"), (0x08, "its hardware")];

const FIX: &[&str] = &[
    "Look at fans, air and neighbours of that GPU: nvidia-smi -q -d TEMPERATURE,PERFORMANCE.",
    "One that is hotter than its neighbours under the same load is to be taken out of service.",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let health = &case.situation.window.gpu_health;
    let told = health.iter().filter_map(|(&device, health)| finding(case, device, health));
    let mut verdicts: Vec<Verdict> = told.map(|finding| Verdict::Found(Box::new(finding))).collect();
    if verdicts.is_empty() {
        let why = if health.is_empty() { "no GPU says how fast it is" } else { "no GPU is held down" };
        verdicts.push(Verdict::ruled_out(RULE.cause, why.to_owned()));
    }
    verdicts
}

fn finding(case: &JobCase<'_, '_>, device: Device, health: &GpuHealth) -> Option<Finding> {
    let (situation, window) = (case.situation, case.situation.window);
    let part = share(health.held_down, health.moments);
    if part < LEAST_PART {
        return None;
    }
    let thread = sufferers::longest(case, device.host, Some(device.number.into()), None)?;
    let host = window.hosts.get(usize::from(device.host)).map(|host| host.name.clone());
    let on = host.as_ref().map_or_else(String::new, |host| format!(" of {host}"));
    let reasons = REASONS.iter().find(|(bit, _)| health.reasons & bit != 0).map_or("its hardware", |(_, words)| words);
    // Where its speed is not known, nobody knows what it costs.
    let lost = health.speed.map_or(0.0, |speed| part * (1.0 - speed));
    let severity = match lost {
        lost if lost >= HIGH => Severity::High,
        lost if lost >= MEDIUM => Severity::Medium,
        _ => Severity::Low,
    };
    let (number, held) = (device.number, percent(part));
    let runs = health.speed.map_or_else(String::new, |speed| format!("; it runs at {} of its speed", percent(speed)));
    let what = format!("GPU {number}{on} says that {reasons} held it down in {held} of the moments it was asked{runs}");
    let chain = Chain::starting(edge(what, Evidence::Explicit, 0, Vec::new()));
    let summary = format!("GPU {number}{on} is held down by {reasons} {held} of the time{runs}.");
    Some(Finding {
        impact: Impact {
            lost_ns: (thread.wall_ns() as f64 * lost) as u64,
            share: rounded(lost),
            calls_affected: health.held_down,
            calls_total: health.moments,
        },
        victim: victim(situation, thread.id),
        culprit: Some(Culprit { host, detail: format!("GPU {number}, {reasons}"), ..Culprit::default() }),
        fix: advice(FIX),
        ..found(RULE.cause, severity, confidence::weigh(&chain, Backing::SUMS, window), summary, chain)
    })
}
