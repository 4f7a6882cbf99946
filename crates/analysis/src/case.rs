//! What a rule is asked about, and what it may answer.

use gpuwhy_model::{
    Chain, Culprit, Edge, Evidence, Finding, Impact, Place, Reference, Role, Severity, StackId, Symptom, ThreadId,
    Victim,
};
use gpuwhy_window::CallSum;

use crate::class::WaitClass;
use crate::confidence::{self, Backing};
use crate::dispatcher::Dispatcher;
use crate::gpu::{Did, Gpu};
use crate::places;
use crate::situation::Situation;
use crate::words::{part, percent, rounded, share};

/// Shares of the victim's time from which on a finding is grave, and below which it is none.
const HIGH_SHARE: f64 = 0.2;
const MEDIUM_SHARE: f64 = 0.05;
const LOW_SHARE: f64 = 0.01;

/// What is known less well than this is nothing to be alarmed by.
const LEAST_CONFIDENCE: f64 = 0.2;

/// The whole window.
pub struct JobCase<'s, 'w> {
    pub situation: &'s Situation<'w>,
    /// Every thread that feeds a GPU.
    pub dispatchers: &'s [Dispatcher<'w>],
}

/// What is left once all that other causes take is known.
pub struct RestCase<'s, 'w> {
    pub situation: &'s Situation<'w>,
    pub dispatchers: &'s [Dispatcher<'w>],
    pub gpus: &'s [Gpu],
    /// What was found of other causes.
    pub found: Vec<&'s Finding>,
}

/// One thread that feeds a GPU.
pub struct ThreadCase<'s, 'w> {
    pub situation: &'s Situation<'w>,
    /// It, and all others that do.
    pub dispatchers: &'s [Dispatcher<'w>],
    pub thread: &'s Dispatcher<'w>,
    /// What it does in the time that the rule is about.
    pub meanwhile: &'static [Did],
}

pub enum Verdict {
    /// Its number and its cause's title are still to come.
    Found(Box<Finding>),
    RuledOut {
        cause: &'static str,
        why: String,
        /// Of the thread's time, to choose the most telling reason.
        share: f64,
        /// Whether the share is the reason: so little is nothing.
        is_too_little: bool,
    },
}

impl Verdict {
    /// Of a job, where no thread's time counts.
    pub fn ruled_out(cause: &'static str, why: String) -> Self {
        Self::RuledOut { cause, why, share: 0.0, is_too_little: false }
    }
}

/// A finding before it is weighed.
pub struct Draft {
    pub cause: &'static str,
    pub lost_ns: u64,
    pub summary: String,
    pub chain: Chain,
    pub culprit: Option<Culprit>,
    pub fix: Vec<String>,
    pub places: Vec<Place>,
    pub calls_affected: u64,
    /// The calls in which it shows; the thread's launches when `None`.
    pub symptom: Option<Symptom>,
    pub backing: Backing,
    pub most_severe: Severity,
}

impl Draft {
    /// A grave finding that rests on sums, until more is said.
    pub fn new(cause: &'static str, lost_ns: u64, summary: String, chain: Chain) -> Self {
        Self {
            cause,
            lost_ns,
            summary,
            chain,
            culprit: None,
            fix: Vec::new(),
            places: Vec::new(),
            calls_affected: 0,
            symptom: None,
            backing: Backing::SUMS,
            most_severe: Severity::High,
        }
    }
}

impl<'w> ThreadCase<'_, 'w> {
    pub fn name(&self) -> String {
        self.situation.name(self.thread.id)
    }

    pub fn share(&self, ns: u64) -> f64 {
        self.thread.share(ns)
    }

    /// The usual answer to a cause that takes next to nothing.
    pub fn too_little(&self, cause: &'static str, lost_ns: u64) -> Option<Verdict> {
        let share = self.share(lost_ns);
        let why = format!("{} of the time of {}", percent(share), self.name());
        (share < LOW_SHARE).then_some(Verdict::RuledOut { cause, why, share, is_too_little: true })
    }

    pub fn rule_out(&self, cause: &'static str, lost_ns: u64, why: String) -> Verdict {
        Verdict::RuledOut { cause, why, share: self.share(lost_ns), is_too_little: false }
    }

    /// Weighs a draft: how grave, how sure.
    pub fn judge(&self, draft: Draft) -> Verdict {
        if let Some(verdict) = self.too_little(draft.cause, draft.lost_ns) {
            return verdict;
        }
        Verdict::Found(Box::new(self.finding(draft)))
    }

    fn finding(&self, draft: Draft) -> Finding {
        let share = self.share(draft.lost_ns);
        let confidence = confidence::weigh(&draft.chain, draft.backing, self.situation.window);
        let most_severe = if confidence < LEAST_CONFIDENCE { Severity::Low } else { draft.most_severe };
        let calls_total = self.thread.calls_made();
        let lost = share.min(self.most_lost());
        let chain =
            if severity_of(lost) < severity_of(share) { draft.chain.then(self.gpus_word()) } else { draft.chain };
        let impact = Impact {
            lost_ns: draft.lost_ns,
            share: rounded(share.min(1.0)),
            calls_affected: draft.calls_affected.min(calls_total),
            calls_total,
        };
        Finding {
            impact,
            victim: victim(self.situation, self.thread.id),
            symptom: draft.symptom.or_else(|| self.launches()),
            culprit: draft.culprit,
            r#where: draft.places,
            fix: draft.fix,
            ..found(draft.cause, severity_of(lost).min(most_severe), confidence, draft.summary, chain)
        }
    }

    /// Nothing is lost on a GPU that works. Of the little that one has lost which mostly works, no more is lost to a wait
    /// than what the thread waited so.
    fn most_lost(&self) -> f64 {
        let (most, idle) = (self.thread.most_lost(), &self.thread.idle);
        let is_wait = !self.meanwhile.is_empty() && self.meanwhile.iter().all(|did| matches!(did, Did::Wait(_)));
        let is_told = is_wait && most < HIGH_SHARE && idle.ns > 0;
        if is_told { most * share(idle.did_ns(self.meanwhile), idle.ns) } else { most }
    }

    fn gpus_word(&self) -> Edge {
        let lost = self.most_lost();
        let what = format!("the GPU says that this took {} of its time or less", percent(lost));
        edge(what, Evidence::Explicit, part(self.thread.wall_ns(), 1.0 - lost), Vec::new())
    }

    /// How long launches take: what suffers when the thread is held up.
    fn launches(&self) -> Option<Symptom> {
        let launches = self.thread.calls.iter().filter(|sum| self.situation.is_launch(sum.op));
        self.symptom(launches.max_by_key(|sum| sum.calls)?)
    }

    pub fn symptom(&self, sum: &CallSum) -> Option<Symptom> {
        Some(Symptom {
            op: self.situation.op(sum.op)?.name.clone(),
            p50_ns: sum.histogram.quantile_ns(0.5).unwrap_or(0).min(sum.max_ns),
            p99_ns: sum.histogram.quantile_ns(0.99).unwrap_or(0).min(sum.max_ns),
            worst_ns: sum.max_ns,
        })
    }

    /// The calls of the function that took most time among those wanted.
    pub fn heaviest(&self, is_wanted: impl Fn(&CallSum) -> bool) -> Option<&'w CallSum> {
        self.thread.calls.iter().copied().filter(|sum| is_wanted(sum)).max_by_key(|sum| sum.sum_ns)
    }

    /// Its process, for causes that are its own doing.
    pub fn own_process(&self, detail: String) -> Culprit {
        own_process(self.situation, self.thread.id, detail)
    }

    /// References of the longest calls wanted that were kept.
    pub fn longest_calls(&self, is_wanted: impl Fn(&gpuwhy_model::Call) -> bool) -> Vec<Reference> {
        let rows = self.situation.window.calls.rows.iter();
        let mut calls: Vec<_> = rows.filter(|call| call.thread == self.thread.id && is_wanted(call)).collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
        calls.iter().take(3).map(|call| call.reference()).collect()
    }

    /// Where the calls wanted were mostly made.
    pub fn places(&self, is_wanted: impl Fn(&gpuwhy_model::Call) -> bool) -> Vec<Place> {
        places::of_calls(self.situation, self.thread.id, is_wanted)
    }

    /// What the thread mostly computed.
    pub fn run_places(&self) -> Vec<Place> {
        places::of_samples(self.situation, self.thread.id, Role::Victim)
    }

    /// What the thread mostly computed while a GPU waited for it.
    pub fn idle_places(&self) -> Vec<Place> {
        places::of_stacks(self.situation, Role::Victim, self.idle_stacks())
    }

    /// The line that it mostly computed while a GPU waited for it, and its share of that.
    pub fn heaviest_idle_line(&self) -> Option<(String, f64)> {
        places::heaviest_line(self.situation, self.idle_stacks())
    }

    /// How long the thread computed inside of these libraries while a GPU waited for it.
    pub fn idle_in(&self, libraries: &[&str]) -> u64 {
        let (mut inside, mut all) = (0u64, 0u64);
        for (stack, count) in self.idle_stacks() {
            all += count;
            inside += if places::is_inside(self.situation, stack, libraries) { count } else { 0 };
        }
        part(self.thread.idle.did_ns(&[Did::Compute]), share(inside, all))
    }

    fn idle_stacks(&self) -> impl Iterator<Item = (StackId, u64)> {
        self.thread.idle.stacks.iter().copied()
    }

    /// Where the thread mostly waited.
    pub fn wait_places(&self, is_wanted: impl Fn(WaitClass) -> bool) -> Vec<Place> {
        places::of_waits(self.situation, self.thread.id, Role::Victim, is_wanted)
    }
}

/// A finding of which it is still to be said whom it costs what, and who is to blame.
pub(crate) fn found(
    cause: &'static str,
    severity: Severity,
    confidence: f64,
    summary: String,
    chain: Chain,
) -> Finding {
    Finding {
        id: String::new(),
        cause: cause.into(),
        title: String::new(),
        is_problem: true,
        during: None,
        victims: 1,
        severity,
        confidence,
        summary,
        impact: Impact { lost_ns: 0, share: 0.0, calls_affected: 0, calls_total: 0 },
        victim: Victim::default(),
        symptom: None,
        culprit: None,
        r#where: Vec::new(),
        chain,
        fix: Vec::new(),
    }
}

pub(crate) fn severity_of(share: f64) -> Severity {
    match share {
        _ if share >= HIGH_SHARE => Severity::High,
        _ if share >= MEDIUM_SHARE => Severity::Medium,
        _ => Severity::Low,
    }
}

pub(crate) fn victim(situation: &Situation<'_>, thread: ThreadId) -> Victim {
    let facts = situation.window.threads.get(&thread);
    let process = situation.process(thread);
    let device = situation.window.calls.rows.iter().filter(|call| call.thread == thread).find_map(|call| call.device);
    Victim {
        host: host_name(situation, thread),
        pid: process.map_or(0, |process| process.pid),
        tid: facts.map_or(0, |facts| facts.tid),
        comm: facts.map_or_else(String::new, |facts| facts.comm.clone()),
        rank: situation.rank(thread),
        device: device.map(u32::from),
        cgroup: process.map(|process| process.cgroup.clone()).filter(|cgroup| !cgroup.is_empty()),
        container: process.and_then(|process| process.container_id.clone()),
        pod: None,
    }
}

/// A thread as the culprit.
pub(crate) fn thread_culprit(situation: &Situation<'_>, thread: ThreadId, detail: String) -> Culprit {
    let facts = situation.window.threads.get(&thread);
    Culprit {
        host: host_name(situation, thread),
        pid: situation.process(thread).map_or(0, |process| process.pid),
        tid: facts.map_or(0, |facts| facts.tid),
        comm: facts.map_or_else(String::new, |facts| facts.comm.clone()),
        detail,
    }
}

/// The process of a thread as the culprit.
pub(crate) fn own_process(situation: &Situation<'_>, thread: ThreadId, detail: String) -> Culprit {
    let process = situation.process(thread);
    let comm = process.map_or_else(String::new, |process| process.comm.clone());
    let pid = process.map_or(0, |process| process.pid);
    Culprit { host: host_name(situation, thread), pid, tid: 0, comm, detail }
}

fn host_name(situation: &Situation<'_>, thread: ThreadId) -> Option<String> {
    situation.host(thread).map(|host| host.name.clone())
}

pub(crate) fn edge(what: String, evidence: Evidence, ns: u64, refs: Vec<Reference>) -> Edge {
    Edge { what, evidence, ns, refs }
}
