//! A process of the job was killed because memory ran out.
//!
//! # How it is detected
//! The kernel says whom it kills for lack of memory. The process counts as the job's when it uses a GPU itself, or when
//! it is an ancestor or a descendant of one that does: a DataLoader worker, a launcher.
//!
//! # When it is not reported
//! Kills of processes that have nothing to do with the job.
//!
//! # How to fix it
//! Give the job more memory (`memory.max`, a container's `--memory`, Kubernetes' `limits.memory`), or use less: fewer
//! workers, smaller prefetch, no copies of the dataset in each worker.

use std::collections::{BTreeMap, BTreeSet};

use gpuwhy_model::{Chain, Culprit, Evidence, Finding, Impact, LifeKind, Process, ProcessLife, Severity, Victim};

use super::memory_reclaim::allowed;
use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge};
use crate::confidence::{self, Backing};
use crate::situation::Situation;

pub const RULE: Rule =
    Rule::new("oom-kill", "A process was killed for memory", include_str!("oom_kill.rs"), Check::Job(check));

/// Generations that are followed.
const MOST_GENERATIONS: usize = 8;

const FIX: &[&str] = &[
    "Give the job more memory (memory.max, --memory, limits.memory).",
    "Or use less: fewer workers, smaller prefetch, no copy of the dataset in each worker.",
];

fn check(case: &JobCase<'_, '_>) -> Vec<Verdict> {
    let situation = case.situation;
    let kills = situation.window.life.iter().filter(|life| life.kind == LifeKind::OomKill);
    let family = Family::find(situation);
    let mut seen = BTreeSet::new();
    let own = kills.filter(|kill| family.is_relative(kill.pid) && seen.insert(kill.pid));
    let mut verdicts: Vec<Verdict> =
        own.map(|kill| Verdict::Found(Box::new(finding(situation, &family, kill)))).collect();
    if verdicts.is_empty() {
        let why = "no process of the job was killed for lack of memory".to_owned();
        verdicts.push(Verdict::ruled_out(RULE.cause, why));
    }
    verdicts
}

/// Who started whom.
struct Family {
    parents: BTreeMap<u32, u32>,
    /// Processes that use a GPU.
    job: BTreeSet<u32>,
}

impl Family {
    fn find(situation: &Situation<'_>) -> Self {
        let window = situation.window;
        let mut parents: BTreeMap<u32, u32> =
            window.processes.values().map(|process| (process.pid, process.parent_pid)).collect();
        for life in window.life.iter().filter(|life| life.kind == LifeKind::Fork) {
            parents.extend(life.child_pid.map(|child| (child, life.pid)));
        }
        let job = situation.job();
        let job = job.iter().filter_map(|process| window.processes.get(process)).map(|process| process.pid).collect();
        Self { parents, job }
    }

    fn is_relative(&self, pid: u32) -> bool {
        let is_descendant = self.ancestors(pid).any(|ancestor| self.job.contains(&ancestor));
        // The first process is everybody's ancestor.
        let is_ancestor = || pid > 1 && self.job.iter().any(|&own| self.ancestors(own).any(|one| one == pid));
        is_descendant || is_ancestor()
    }

    /// The process itself, and who started it, and so on.
    fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied()).take(MOST_GENERATIONS)
    }
}

fn finding(situation: &Situation<'_>, family: &Family, kill: &ProcessLife) -> Finding {
    let process = situation.window.processes.values().rfind(|process| process.pid == kill.pid);
    let comm = if kill.comm.is_empty() { process.map_or("", |process| process.comm.as_str()) } else { &kill.comm };
    let name = if comm.is_empty() { format!("process {}", kill.pid) } else { format!("{comm} ({})", kill.pid) };
    let parent = family.ancestors(kill.pid).nth(1).filter(|parent| family.job.contains(parent));
    let name = parent.map_or(name.clone(), |parent| format!("{name}, a child of process {parent} of the job,"));
    let detail = process.map_or_else(|| "killed for lack of memory".to_owned(), allowed);
    let what = format!("the kernel chose {name} to be killed because memory ran out");
    let chain = Chain::starting(edge(what, Evidence::Explicit, 0, Vec::new()));
    Finding {
        id: String::new(),
        cause: RULE.cause.into(),
        title: String::new(),
        is_problem: true,
        during: None,
        victims: 1,
        severity: Severity::High,
        confidence: confidence::weigh(&chain, Backing::SUMS, situation.window),
        summary: format!("{name} was killed because memory ran out ({detail})."),
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: 1, calls_total: 1 },
        victim: killed(kill, comm, process),
        symptom: None,
        culprit: Some(Culprit { pid: kill.pid, tid: 0, comm: comm.to_owned(), detail }),
        r#where: Vec::new(),
        chain,
        fix: advice(FIX),
    }
}

fn killed(kill: &ProcessLife, comm: &str, process: Option<&Process>) -> Victim {
    Victim {
        pid: kill.pid,
        tid: kill.pid,
        comm: comm.to_owned(),
        cgroup: process.map(|process| process.cgroup.clone()).filter(|cgroup| !cgroup.is_empty()),
        container: process.and_then(|process| process.container_id.clone()),
        ..Victim::default()
    }
}
