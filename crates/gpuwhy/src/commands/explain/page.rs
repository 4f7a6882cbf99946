//! An explanation as one screen of text.

use std::fmt::Write;

use gpuwhy_model::{
    Breakdown, Contradiction, Coverage, Evidence, Explanation, Finding, Phase, PhaseName, Place, Role, RuledOut,
    Severity, TimePart, WalkEnd, WalksEnded,
};

use crate::print::safe;
use gpuwhy_questions::units::{count, duration, percent};

/// Findings that are told in full; the rest get a line each.
const IN_FULL: usize = 2;
/// What a host did while a GPU was idle: so many lines.
const IDLE_BECAUSE: usize = 4;
/// Less time with other ranks is not told.
const LEAST_WITH_OTHERS: f64 = 0.01;
/// A GPU that is idle for more of its time waits for something.
const MUCH_IDLE: f64 = 0.2;
/// Threads whose time is shown.
const THREADS: usize = 2;
/// Suspects whose innocence is explained; the rest are named.
const INNOCENT: usize = 4;
const BAR: usize = 30;
const WIDTH: usize = 96;

/// Colours are taken off again where nobody can see them.
pub fn page(explanation: &Explanation) -> String {
    let mut page = String::new();
    let (told, mentioned) = split(&explanation.findings);
    gpus(&mut page, explanation);
    verdict(&mut page, explanation);
    for finding in &told {
        in_full(&mut page, finding, &when(explanation, finding));
    }
    also(&mut page, &mentioned);
    innocent(&mut page, &explanation.ruled_out);
    for thread in explanation.threads.iter().take(THREADS) {
        time(&mut page, thread);
    }
    basis(&mut page, explanation);
    page
}

/// How long each GPU had nothing to do, and what the host did meanwhile.
fn gpus(page: &mut String, explanation: &Explanation) {
    for gpu in &explanation.gpus {
        let [least, most] = gpu.interval;
        let of = if gpu.phase == PhaseName::Steady.as_str() { "of its steady state" } else { "of the time" };
        let between = format!("between {} and {}", points(least), points(most));
        let idle = points(gpu.idle_share);
        let on = gpu.host.as_ref().map_or_else(String::new, |host| format!(" of {}", safe(host)));
        let _ =
            writeln!(page, "\x1b[1mGPU {}{on} was idle {idle} {of}\x1b[0m ({between}, {})", gpu.device, gpu.known_by);
        for because in gpu.idle_because.iter().take(IDLE_BECAUSE) {
            let cause = because.finding.as_ref().and_then(|id| explanation.findings.iter().find(|one| one.id == *id));
            let cause = cause.map_or_else(String::new, |finding| format!(" ({})", finding.cause));
            let part = points(because.share_of_idle * gpu.idle_share);
            let _ = writeln!(page, "  {part:>7}  {}{cause}", because.why);
        }
        let all_ns = gpu.busy_ns.saturating_add(gpu.idle_ns).saturating_add(gpu.unknown_ns).max(1);
        let with_others = gpu.communicating_ns as f64 / all_ns as f64;
        if with_others >= LEAST_WITH_OTHERS {
            let part = points(with_others);
            let _ = writeln!(page, "  {part:>7}  busy, but waiting for other ranks at least");
        }
        if let Some(Contradiction { by_calls, by_itself, because, .. }) = &gpu.contradiction {
            let [calls, itself] =
                [by_calls, by_itself].map(|[least, most]| format!("{} to {}", points(*least), points(*most)));
            let _ = writeln!(page, "  Calls tell {calls} idle, the GPU itself says {itself}: {because}.");
        }
        let _ = writeln!(page);
    }
}

pub(super) fn points(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Grave ones in full, as many as fit, harmless ones never but for a single one.
fn split(findings: &[Finding]) -> (Vec<&Finding>, Vec<&Finding>) {
    let is_grave = |finding: &&Finding| finding.severity > Severity::Low;
    let told: Vec<_> = findings.iter().filter(is_grave).take(IN_FULL).collect();
    let mentioned = findings.iter().filter(|finding| !told.iter().any(|one| std::ptr::eq(*one, *finding))).collect();
    (told, mentioned)
}

fn verdict(page: &mut String, explanation: &Explanation) {
    let grave = explanation.findings.iter().any(|finding| finding.severity > Severity::Low);
    if grave {
        return;
    }
    let text = if explanation.threads.is_empty() {
        "Nothing fed a GPU in this time, so there is nothing to explain."
    } else if explanation.gpus.iter().any(|gpu| gpu.idle_share >= MUCH_IDLE) {
        "Nobody gave the GPU more to do, and nothing grave held up those who do."
    } else {
        "Nothing on this host keeps the GPU waiting."
    };
    let _ = writeln!(page, "\x1b[1m{text}\x1b[0m\n");
}

/// From when to when it was, where it was not all the time.
fn when(explanation: &Explanation, finding: &Finding) -> String {
    let is_steady = |phase: &&Phase| phase.name == PhaseName::Steady;
    let all = explanation.phases.iter().find(is_steady).map_or(explanation.window, Phase::span);
    let Some(during) = finding.during.filter(|during| during.ns() < all.ns() / 2) else {
        return String::new();
    };
    let since = |at_ns: u64| duration(at_ns.saturating_sub(explanation.window.from_ns));
    format!(", from {} to {} of the trace", since(during.from_ns), since(during.to_ns))
}

fn in_full(page: &mut String, finding: &Finding, when: &str) {
    let colour = if finding.severity == Severity::High { "1;31" } else { "1;33" };
    let sure = (finding.confidence * 100.0).round();
    let (cause, severity) = (&finding.cause, finding.severity);
    let _ = writeln!(page, "\x1b[{colour}m{cause}\x1b[0m  {severity}, {sure} % sure{when}");
    paragraph(page, "  ", "  ", &with_others(finding));
    let _ = writeln!(page);
    for (index, edge) in finding.chain.edges().enumerate() {
        let title = if index == 0 { "why" } else { "" };
        let evidence =
            if edge.evidence == Evidence::Observed { String::new() } else { format!(" ({})", edge.evidence) };
        paragraph(page, &format!("  {title:<6}"), "          ", &format!("{}{evidence}", edge.what));
    }
    let mut last = None;
    for place in &finding.r#where {
        let title = if last.is_none() { "where" } else { "" };
        let whose = if last == Some(place.role) { "" } else { whose(place.role) };
        last = Some(place.role);
        paragraph(page, &format!("  {title:<6}{whose:<9}"), "                 ", &place_text(place));
    }
    for (index, fix) in finding.fix.iter().enumerate() {
        let title = if index == 0 { "fix" } else { "" };
        paragraph(page, &format!("  {title:<6}"), "        ", fix);
    }
    let _ = writeln!(page);
}

fn with_others(finding: &Finding) -> String {
    match finding.victims.saturating_sub(1) {
        0 => finding.summary.clone(),
        1 => format!("{} The same happens to one more process of this program.", finding.summary),
        others => {
            format!("{} The same happens to {} more processes of this program.", finding.summary, count(others.into()))
        }
    }
}

/// A line with nothing before it is called by the one above.
fn whose(role: Role) -> &'static str {
    match role {
        Role::Victim => "waits at",
        Role::Culprit => "works at",
    }
}

fn place_text(place: &Place) -> String {
    let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
    let function = place.function.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    format!("{}{line}{function}", place.file)
}

fn also(page: &mut String, findings: &[&Finding]) {
    if findings.is_empty() {
        return;
    }
    let _ = writeln!(page, "\x1b[1mAlso seen\x1b[0m");
    for finding in findings {
        paragraph(page, "  ", "    ", &format!("{} ({}): {}", finding.cause, finding.severity, with_others(finding)));
    }
    let _ = writeln!(page);
}

/// Causes without a trace of them are only named.
fn innocent(page: &mut String, ruled_out: &[RuledOut]) {
    let is_nothing = |one: &&RuledOut| one.share.is_some_and(|share| share <= 0.0);
    let (none, some): (Vec<_>, Vec<_>) = ruled_out.iter().partition(is_nothing);
    if ruled_out.is_empty() {
        return;
    }
    let _ = writeln!(page, "\x1b[1mNot the cause\x1b[0m");
    for one in some.iter().take(INNOCENT) {
        paragraph(page, "  ", "    ", &format!("{}: {}", one.cause, one.why));
    }
    let names: Vec<_> = none.iter().chain(some.iter().skip(INNOCENT)).map(|one| one.cause.as_str()).collect();
    if !names.is_empty() {
        paragraph(page, "  ", "    ", &format!("nor {}", names.join(", ")));
    }
    let _ = writeln!(page);
}

fn time(page: &mut String, thread: &Breakdown) {
    let Breakdown { ref host, pid, tid, ref comm, wall_ns, ref parts, ref steps } = *thread;
    let on = host.as_ref().map_or_else(String::new, |host| format!(" on {}", safe(host)));
    let who = if pid == tid { format!("{} ({pid})", safe(comm)) } else { format!("{} ({pid}/{tid})", safe(comm)) };
    let _ = write!(page, "\x1b[1mWhere the time of {who}{on} went\x1b[0m: {}", duration(wall_ns));
    if let Some(steps) = steps {
        let _ = write!(page, ", {} steps of {}", count(steps.count), duration(steps.median_ns));
        if let Some(change) = steps.change {
            let _ = write!(page, ", {:.1} times as long later on", change.factor);
        }
    }
    let _ = writeln!(page);
    let mut parts: Vec<_> = parts.iter().filter(|part| part.ns * 200 >= wall_ns && part.ns > 0).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    for part in parts {
        let length = (part.ns as u128 * BAR as u128 / u128::from(wall_ns.max(1))) as usize;
        let bar = bar_of(part.name).repeat(length.min(BAR));
        let _ = writeln!(page, "  {:<28}{:>7}  {bar}", part.name.as_str(), percent(part.ns, wall_ns));
    }
    let _ = writeln!(page);
}

/// What feeds the GPU, or waits for it, looks different from what holds it up, without colour too.
fn bar_of(part: TimePart) -> &'static str {
    match part {
        TimePart::Launching | TimePart::WaitingForGpu | TimePart::Copying => "=",
        TimePart::Application | TimePart::Asleep | TimePart::Handover => "-",
        _ => "#",
    }
}

fn basis(page: &mut String, explanation: &Explanation) {
    let Coverage { events, ref lost, ref sampled, ref unattached, ref stacks } = explanation.coverage;
    let span = explanation.window.ns();
    let mut text = format!("Based on {} records of {}", count(events), duration(span));
    let lost: Vec<_> = lost.iter().map(|(reason, number)| format!("{} {reason}", count(*number))).collect();
    text += &if lost.is_empty() { ", none lost".to_owned() } else { format!("; lost: {}", lost.join(", ")) };
    if !sampled.is_empty() {
        let seen = |one: &gpuwhy_model::Sampled| format!("{} {:.0} % of the time", one.op, one.fraction * 100.0);
        let all: Vec<_> = sampled.iter().take(3).map(seen).collect();
        let more = if sampled.len() > 3 { format!(" and {} more", sampled.len() - 3) } else { String::new() };
        text += &format!("; seen in part: {}{more}", all.join(", "));
    }
    for gap in unattached {
        text += &format!("; {gap}");
    }
    text += &whole_stacks(stacks);
    paragraph(page, "", "", &format!("{text}."));
}

/// How many stacks were walked to their end.
fn whole_stacks(stacks: &[WalksEnded]) -> String {
    let sum = |is_meant: fn(&WalksEnded) -> bool| -> u64 {
        stacks.iter().filter(|walks| is_meant(walks)).map(|walks| walks.count).sum()
    };
    let all = sum(|_| true);
    if all == 0 {
        return String::new();
    }
    let whole = sum(|walks| walks.end == WalkEnd::Complete);
    format!("; {} of {} stacks were walked to their end", count(whole), count(all))
}

/// Words, broken into lines.
pub(super) fn paragraph(page: &mut String, first: &str, rest: &str, text: &str) {
    let text = safe(text);
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(page, "{}", line.trim_end());
            line = rest.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(page, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::{Chain, Edge, GpuTime, Impact, Span, Victim};

    fn finding(severity: Severity, summary: &str) -> Finding {
        let edge = Edge { what: "it waited".into(), evidence: Evidence::Missing, ns: 1, refs: Vec::new() };
        Finding {
            id: "f1".into(),
            cause: "lock-wait".into(),
            title: "Waiting for a lock".into(),
            is_problem: true,
            during: None,
            victims: 1,
            severity,
            confidence: 0.93,
            summary: summary.into(),
            impact: Impact::default(),
            victim: Victim::default(),
            symptom: None,
            culprit: None,
            r#where: Vec::new(),
            chain: Chain::starting(edge),
            fix: vec!["Hold it less long.".into()],
        }
    }

    fn explanation(findings: Vec<Finding>) -> Explanation {
        Explanation {
            schema: Explanation::SCHEMA,
            version: "1".into(),
            window: Span { from_ns: 0, to_ns: 1_000_000_000 },
            coverage: Coverage::default(),
            phases: Vec::new(),
            gpus: Vec::new(),
            findings,
            ruled_out: Vec::new(),
            threads: Vec::new(),
            ranks: Vec::new(),
        }
    }

    #[test]
    fn where_calls_and_the_gpu_contradict_each_other_both_are_told() {
        let contradiction = Contradiction {
            by_calls: [0.5, 0.7],
            by_itself: [0.08, 0.22],
            difference: 0.28,
            because: "1 of 2 processes on it are not traced".into(),
        };
        let gpu = GpuTime {
            device: 0,
            host: None,
            uuid: None,
            phase: "steady".into(),
            busy_ns: 30,
            idle_ns: 50,
            unknown_ns: 20,
            communicating_ns: 0,
            known_by: Evidence::Observed,
            idle_share: 0.5,
            interval: [0.5, 0.7],
            idle_because: Vec::new(),
            contradiction: Some(contradiction),
        };
        let text = page(&Explanation { gpus: vec![gpu], ..explanation(Vec::new()) });
        let line =
            "Calls tell 50 % to 70 % idle, the GPU itself says 8 % to 22 %: 1 of 2 processes on it are not traced.";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_grave_finding_comes_first_with_its_chain_and_what_to_do() {
        let text = page(&explanation(vec![finding(Severity::High, "python waited.")]));
        assert!(text.contains("lock-wait\x1b[0m  high, 93 % sure"), "{text}");
        assert!(text.contains("why   it waited (missing)") && text.contains("fix   Hold it less long."), "{text}");
    }

    #[test]
    fn harmless_findings_are_mentioned_only() {
        let text = page(&explanation(vec![finding(Severity::Low, "a little.")]));
        assert!(text.contains("nothing to explain") && text.contains("lock-wait (low): a little."), "{text}");
        assert!(!text.contains("fix"), "{text}");
    }

    #[test]
    fn names_of_traced_programs_reach_the_terminal_as_text() {
        let text = page(&explanation(vec![finding(Severity::High, "py\x1b[2Jthon\nwaited")]));
        assert!(text.contains("py\\u{1b}[2Jthon\\nwaited"), "{text}");
    }

    #[test]
    fn lines_fit_the_screen() {
        let text = page(&explanation(vec![finding(Severity::High, &"many words ".repeat(60))]));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH + 10), "{text}");
    }
}
