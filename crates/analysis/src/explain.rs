//! From a window to an explanation.

use gpuwhy_model::{Breakdown, Explanation, RankLateness, Span};
use gpuwhy_window::Window;

use crate::case::{JobCase, RestCase, ThreadCase, Verdict};
use crate::cohorts::Cohort;
use crate::dispatcher::{Dispatcher, dispatchers};
use crate::gpu::Gpu;
use crate::rules::{Check, RULES};
use crate::situation::Situation;
use crate::words::share;
use crate::{coverage, gpu, ranking};

/// Why GPUs waited in this window. A pure function of it.
pub fn explain(window: &Window) -> Explanation {
    let situation = Situation::new(window);
    let gpus = gpu::gpus(&situation);
    let dispatchers = dispatchers(&situation, &gpus);
    let (mut findings, mut ruled_out) = ranking::rank(verdicts(&situation, &dispatchers, &gpus));
    let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
    findings.iter_mut().for_each(|finding| finding.during = Some(span));
    coverage::note_gaps(&situation, &mut ruled_out);
    let gpus = gpus.iter().map(|gpu| gpu::told(&situation, &dispatchers, gpu, &findings)).collect();
    Explanation {
        schema: Explanation::SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        window: span,
        coverage: coverage::coverage(&situation),
        phases: Vec::new(),
        gpus,
        findings,
        ruled_out,
        threads: dispatchers.iter().map(|thread| breakdown(&situation, thread)).collect(),
        ranks: situation.cohorts.iter().flat_map(|cohort| lateness(&situation, cohort)).collect(),
    }
}

fn verdicts(situation: &Situation<'_>, dispatchers: &[Dispatcher<'_>], gpus: &[Gpu]) -> Vec<Verdict> {
    let (mut verdicts, mut rests) = (Vec::new(), Vec::new());
    for rule in RULES {
        match rule.check {
            Check::Job(check) => verdicts.extend(check(&JobCase { situation, dispatchers })),
            Check::Thread(check) => {
                let meanwhile = rule.meanwhile;
                let cases = dispatchers.iter().map(|thread| ThreadCase { situation, dispatchers, thread, meanwhile });
                verdicts.extend(cases.map(|case| check(&case)));
            }
            Check::Rest(check) => rests.push(check),
        }
    }
    let found = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Found(finding) => Some(&**finding),
        Verdict::RuledOut { .. } => None,
    });
    let case = RestCase { situation, dispatchers, gpus, found: found.collect() };
    let rest: Vec<Verdict> = rests.iter().flat_map(|check| check(&case)).collect();
    verdicts.into_iter().chain(rest).collect()
}

pub(crate) fn breakdown(situation: &Situation<'_>, thread: &Dispatcher<'_>) -> Breakdown {
    let facts = situation.window.threads.get(&thread.id);
    Breakdown {
        host: situation.host(thread.id).map(|host| host.name.clone()),
        pid: thread.process.map_or(0, |process| process.pid),
        tid: facts.map_or(0, |facts| facts.tid),
        comm: facts.map_or_else(String::new, |facts| facts.comm.clone()),
        wall_ns: thread.wall_ns(),
        parts: thread.parts.list(),
        steps: thread.steps.clone(),
    }
}

fn lateness(situation: &Situation<'_>, cohort: &Cohort) -> impl Iterator<Item = RankLateness> {
    let looked_at_ns = situation.window.collectives.covered_ns();
    cohort.ranks.iter().filter_map(move |rank| {
        let process = situation.process(rank.thread)?;
        Some(RankLateness {
            communicator: format!("{:016x}", cohort.communicator_id),
            rank: rank.number,
            host: situation.host(rank.thread).map(|host| host.name.clone()),
            pid: process.pid,
            comm: process.comm.clone(),
            operations: cohort.operations,
            late_operations: rank.late_operations,
            late_ns: rank.late_ns,
            at_a_time_ns: rank.at_a_time_ns(),
            share: share(rank.late_ns, looked_at_ns),
        })
    })
}
