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

use gpuwhy_model::{
    Chain, Culprit, Evidence, Finding, Impact, LifeKind, Process, ProcessId, ProcessLife, Severity, Victim,
};
use gpuwhy_window::Life;

use super::memory_reclaim::allowed;
use super::{Check, Rule, advice};
use crate::case::{JobCase, Verdict, edge, found};
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
    let kills = situation.window.life.iter().filter(|life| life.turn.kind == LifeKind::OomKill);
    let family = Family::find(situation);
    let mut seen = BTreeSet::new();
    let own = kills.filter(|kill| family.is_relative(killed_pid(kill)) && seen.insert(killed_pid(kill)));
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
    parents: BTreeMap<Pid, Pid>,
    /// Processes that use a GPU.
    job: BTreeSet<Pid>,
}

/// The host, and the process there.
type Pid = (u16, u32);

fn killed_pid(kill: &Life) -> Pid {
    (kill.host, kill.turn.pid)
}

impl Family {
    fn find(situation: &Situation<'_>) -> Self {
        let window = situation.window;
        let mut parents = BTreeMap::new();
        let mut pids = BTreeMap::new();
        for (&id, process) in &window.processes {
            let host = window.host_of(id);
            parents.insert((host, process.pid), (host, process.parent_pid));
            pids.insert(id, (host, process.pid));
        }
        for Life { host, turn } in window.life.iter().filter(|life| life.turn.kind == LifeKind::Fork) {
            parents.extend(turn.child_pid.map(|child| ((*host, child), (*host, turn.pid))));
        }
        let job = situation.job().iter().filter_map(|process| pids.get(process)).copied().collect();
        Self { parents, job }
    }

    fn is_relative(&self, pid: Pid) -> bool {
        let is_descendant = self.ancestors(pid).any(|ancestor| self.job.contains(&ancestor));
        // The first process is everybody's ancestor.
        let is_ancestor = || pid.1 > 1 && self.job.iter().any(|&own| self.ancestors(own).any(|one| one == pid));
        is_descendant || is_ancestor()
    }

    /// The process itself, and who started it, and so on.
    fn ancestors(&self, pid: Pid) -> impl Iterator<Item = Pid> + '_ {
        std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied()).take(MOST_GENERATIONS)
    }
}

fn finding(situation: &Situation<'_>, family: &Family, killed: &Life) -> Finding {
    let (window, kill) = (situation.window, &killed.turn);
    let is_killed =
        |(id, process): &(&ProcessId, &Process)| process.pid == kill.pid && window.host_of(**id) == killed.host;
    let process = window.processes.iter().rfind(is_killed).map(|(_, process)| process);
    let host = window.hosts.get(usize::from(killed.host)).map(|host| host.name.clone());
    let comm = if kill.comm.is_empty() { process.map_or("", |process| process.comm.as_str()) } else { &kill.comm };
    let name = if comm.is_empty() { format!("process {}", kill.pid) } else { format!("{comm} ({})", kill.pid) };
    let parent = family.ancestors(killed_pid(killed)).nth(1).filter(|parent| family.job.contains(parent));
    let name = parent.map_or(name.clone(), |(_, pid)| format!("{name}, a child of process {pid} of the job,"));
    let detail = process.map_or_else(|| "killed for lack of memory".to_owned(), allowed);
    let what = format!("the kernel chose {name} to be killed because memory ran out");
    let chain = Chain::starting(edge(what, Evidence::Explicit, 0, Vec::new()));
    let confidence = confidence::weigh(&chain, Backing::SUMS, situation.window);
    let summary = format!("{name} was killed because memory ran out ({detail}).");
    Finding {
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: 1, calls_total: 1 },
        victim: Victim { host: host.clone(), ..victim(kill, comm, process) },
        culprit: Some(Culprit { host, pid: kill.pid, tid: 0, comm: comm.to_owned(), detail }),
        fix: advice(FIX),
        ..found(RULE.cause, Severity::High, confidence, summary, chain)
    }
}

fn victim(kill: &ProcessLife, comm: &str, process: Option<&Process>) -> Victim {
    Victim {
        pid: kill.pid,
        tid: kill.pid,
        comm: comm.to_owned(),
        cgroup: process.map(|process| process.cgroup.clone()).filter(|cgroup| !cgroup.is_empty()),
        container: process.and_then(|process| process.container_id.clone()),
        ..Victim::default()
    }
}
