//! What was found in the last half minute, and since when it is there.

use std::time::Duration;

use gpuwhy_model::{Explanation, Finding};

#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Root cause first.
    pub found: Vec<Found>,
    /// Whether anybody feeds a GPU; unknown before the first answer.
    pub has_dispatchers: Option<bool>,
    /// Why there is no newer answer.
    pub problem: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub finding: Finding,
    /// How long the trace had run when it first appeared.
    pub since: Duration,
}

impl Verdict {
    pub fn take(&mut self, answer: Result<Explanation, String>, now: Duration) {
        let explanation = match answer {
            Ok(explanation) => explanation,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        let found = explanation.findings.into_iter().map(|finding| {
            let since = self.found.iter().find(|one| is_same(&one.finding, &finding)).map_or(now, |one| one.since);
            Found { finding, since }
        });
        self.found = found.collect();
        self.has_dispatchers = Some(!explanation.threads.is_empty());
        self.problem = None;
    }
}

fn is_same(one: &Finding, other: &Finding) -> bool {
    one.cause == other.cause && (one.victim.pid, one.victim.tid) == (other.victim.pid, other.victim.tid)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use gpuwhy_model::{
        Chain, Coverage, Culprit, Edge, Evidence, Impact, Place, PlaceKind, Role, Severity, Span, Victim,
    };

    pub fn finding(pid: u32) -> Finding {
        let edge =
            Edge { what: "it waited for a worker".into(), evidence: Evidence::Observed, ns: 1, refs: Vec::new() };
        let place = Place {
            kind: PlaceKind::Python,
            file: "loader.py".into(),
            line: Some(31),
            function: Some("read_sample".into()),
            role: Role::Culprit,
        };
        Finding {
            id: "f1".into(),
            cause: "input-starved".into(),
            title: "Input came too late".into(),
            is_problem: true,
            during: None,
            victims: 1,
            severity: Severity::High,
            confidence: 0.93,
            summary: "python (4242) waited 4.20 s of 10.0 s for worker (4250), which was waiting for a disk.".into(),
            impact: Impact::default(),
            victim: Victim { pid, tid: pid, comm: "python".into(), ..Victim::default() },
            symptom: None,
            culprit: Some(Culprit {
                pid: 4250,
                tid: 4250,
                comm: "worker".into(),
                detail: "reads from vda".into(),
                ..Culprit::default()
            }),
            r#where: vec![place],
            chain: Chain::starting(edge),
            fix: vec!["Read ahead, or from a faster disk.".into()],
        }
    }

    pub fn explanation(findings: Vec<Finding>) -> Explanation {
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
    fn a_finding_that_stays_keeps_the_moment_it_appeared() {
        let mut verdict = Verdict::default();
        verdict.take(Ok(explanation(vec![finding(1)])), Duration::from_secs(2));
        verdict.take(Ok(explanation(vec![finding(2), finding(1)])), Duration::from_secs(4));
        let since: Vec<_> = verdict.found.iter().map(|one| one.since.as_secs()).collect();
        assert_eq!(since, [4, 2]);
    }

    #[test]
    fn what_was_found_stays_when_there_is_no_new_answer() {
        let mut verdict = Verdict::default();
        verdict.take(Ok(explanation(vec![finding(1)])), Duration::ZERO);
        verdict.take(Err("it took too long".into()), Duration::ZERO);
        assert_eq!((verdict.found.len(), verdict.problem.as_deref()), (1, Some("it took too long")));
    }
}
