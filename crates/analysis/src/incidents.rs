//! Short incidents in long runs: seconds in which much less is asked of the GPUs than usual, looked at on their own.

use gpuwhy_model::{Explanation, Finding, Severity, Span};

use crate::phases::{WorkSecond, usual};
use crate::rules;

/// In a shorter run, an incident is a good part of it and found as such.
const LONG_RUN_NS: u64 = 30_000_000_000;

/// A second with less than this part of the usual work is one in which something goes wrong.
const LEAST_OF_USUAL: f64 = 0.5;

/// An incident lasts this long, and this part of the run at most: what lasts longer is what the run is like.
const SHORTEST_NS: u64 = 2_000_000_000;
const LONGEST_PART: f64 = 0.4;

/// What loses this part of its time in an incident is about the incident.
const MOST_OF_IT: f64 = 0.6;

/// So many are looked at, the longest first.
const MOST: usize = 3;

const SECOND_NS: u64 = 1_000_000_000;

/// When there was much less work than usual, in the order of time. Seconds without any call are missing in `seconds`.
pub fn slumps(seconds: &[WorkSecond], run: Span) -> Vec<Span> {
    let length_ns = run.ns();
    let inside: Vec<&WorkSecond> = seconds.iter().filter(|second| is_inside(second.bucket_ns, run)).collect();
    let Some(usual) = usual(inside.iter().copied()).filter(|_| length_ns >= LONG_RUN_NS) else { return Vec::new() };
    let is_slack = |second: &WorkSecond| (second.launches as f64) < LEAST_OF_USUAL * usual;
    let mut slumps: Vec<Span> = Vec::new();
    let mut add = |from_ns: u64, to_ns: u64| match slumps.last_mut() {
        Some(last) if from_ns <= last.to_ns.saturating_add(SECOND_NS / 2) => last.to_ns = to_ns,
        _ => slumps.push(Span { from_ns, to_ns }),
    };
    for (at, second) in inside.iter().enumerate() {
        let next_ns = inside.get(at + 1).map_or(run.to_ns, |next| next.bucket_ns);
        let end_ns = second.bucket_ns.saturating_add(SECOND_NS).min(next_ns);
        if is_slack(second) {
            add(second.bucket_ns, end_ns);
        }
        if next_ns.saturating_sub(end_ns) > SECOND_NS / 2 {
            add(end_ns, next_ns);
        }
    }
    slumps.retain(|span| (SHORTEST_NS..=(length_ns as f64 * LONGEST_PART) as u64).contains(&span.ns()));
    slumps.sort_by_key(|span| std::cmp::Reverse(span.ns()));
    slumps.truncate(MOST);
    slumps.sort_by_key(|span| span.from_ns);
    slumps
}

fn is_inside(at_ns: u64, run: Span) -> bool {
    (run.from_ns..run.to_ns).contains(&at_ns)
}

/// Adds what an incident is about, in place of what the run as a whole says of the same where most of that is the incident.
pub fn add_incident(explanation: &mut Explanation, incident: Explanation) {
    let is_grave = |finding: &&Finding| finding.severity > Severity::Low && finding.is_problem;
    let Some(mut found) = incident.findings.into_iter().find(|finding| is_grave(&finding)) else { return };
    // It is over, and most of the run was as it should be.
    found.severity = found.severity.min(Severity::Medium);
    let culprit = |finding: &Finding| finding.culprit.as_ref().map(|culprit| culprit.comm.clone());
    let is_most = |known: &Finding| found.impact.lost_ns as f64 >= MOST_OF_IT * known.impact.lost_ns as f64;
    // Of several alike, the run may name another one than the incident does.
    let is_same = |known: &Finding| {
        known.cause == found.cause
            && known.victim.process() == found.victim.process()
            && (culprit(known) == culprit(&found) || is_most(known))
    };
    match explanation.findings.iter_mut().find(|known| is_same(known)) {
        Some(known) if known.severity > Severity::Low => {
            if is_most(known) {
                found.severity = found.severity.max(known.severity);
                *known = Finding { id: known.id.clone(), ..found };
            }
            return;
        }
        _ => explanation.findings.retain(|known| !is_same(known)),
    }
    let after = explanation.findings.iter().filter(is_grave).count();
    explanation.findings.insert(after, Finding { id: String::new(), ..found });
    renumber(explanation);
}

/// Adds that the program did not go on any more, which what it did before does not show, by what `whole` says of all of it.
pub fn add_end(explanation: &mut Explanation, whole: Explanation) {
    let is_the_end = |finding: &Finding| rules::find(&finding.cause).is_some_and(|rule| rule.is_the_end);
    // Several devices may break, and a job hangs once.
    let device = |finding: &Finding| {
        let culprit = finding.culprit.as_ref().filter(|culprit| culprit.pid == 0)?;
        Some((culprit.host.clone(), culprit.detail.clone()))
    };
    let is_known =
        |known: &Finding, finding: &Finding| known.cause == finding.cause && device(known) == device(finding);
    let is_new = |finding: &Finding| !explanation.findings.iter().any(|known| is_known(known, finding));
    let ends = whole.findings.into_iter().filter(|finding| is_the_end(finding) && is_new(finding));
    let ends: Vec<Finding> = ends.map(|finding| Finding { id: String::new(), ..finding }).collect();
    explanation.ruled_out.retain(|line| ends.iter().all(|end| end.cause != line.cause));
    explanation.findings.splice(..0, ends);
    renumber(explanation);
}

fn renumber(explanation: &mut Explanation) {
    let mut ids = std::collections::BTreeMap::new();
    for (at, finding) in explanation.findings.iter_mut().enumerate() {
        let id = format!("f{}", at + 1);
        ids.insert(std::mem::replace(&mut finding.id, id.clone()), id);
    }
    for because in explanation.gpus.iter_mut().flat_map(|gpu| &mut gpu.idle_because) {
        because.finding = because.finding.take().and_then(|id| ids.get(&id).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    /// Seconds with these launches; `None` for one without any call.
    fn found(launches: &[Option<u64>]) -> Vec<(u64, u64)> {
        let second = |(at, launches): (usize, &Option<u64>)| {
            Some(WorkSecond { bucket_ns: at as u64 * S, launches: (*launches)?, ..WorkSecond::default() })
        };
        let seconds: Vec<_> = launches.iter().enumerate().filter_map(second).collect();
        let run = Span { from_ns: 0, to_ns: launches.len() as u64 * S };
        slumps(&seconds, run).iter().map(|span| (span.from_ns / S, span.to_ns / S)).collect()
    }

    fn run(length: usize, slack: std::ops::Range<usize>, launches: Option<u64>) -> Vec<Option<u64>> {
        (0..length).map(|at| if slack.contains(&at) { launches } else { Some(100 + at as u64 % 7) }).collect()
    }

    #[test]
    fn seconds_with_much_less_work_than_usual_are_found_also_where_there_was_no_call_at_all() {
        assert_eq!(found(&run(60, 20..24, Some(10))), [(20, 24)]);
        assert_eq!(found(&run(60, 20..24, None)), [(20, 24)]);
    }

    #[test]
    fn a_moment_a_short_run_and_what_a_run_is_mostly_like_are_no_incidents() {
        assert_eq!(found(&run(60, 20..21, Some(10))), []);
        assert_eq!(found(&run(20, 10..14, Some(10))), []);
        assert_eq!(found(&run(60, 20..50, Some(10))), []);
        assert_eq!(found(&[]), []);
    }
}
