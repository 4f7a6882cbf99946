//! Who ran on the CPU that a thread waited for.

use std::collections::BTreeMap;

use gpuwhy_model::{ProcessId, Reference, ThreadId};

use crate::situation::Situation;
use crate::waits::longest;

#[derive(Debug, Default)]
pub(super) struct Takers {
    threads: BTreeMap<ThreadId, u64>,
    /// Run-queue time without stops by a quota: of the records, and of all they stand for.
    pub recorded_ns: u64,
    pub all_ns: u64,
    pub records: u64,
    /// The part of more threads than a record has places for.
    others_ns: u64,
    /// The part that the tracer itself took.
    pub tracer_ns: u64,
    pub cited: Vec<Reference>,
}

impl Takers {
    pub fn find(situation: &Situation<'_>, victim: ThreadId) -> Self {
        let mut takers = Self::default();
        let waits = situation.waits(victim).iter().filter(|waiting| !waiting.stretch.is_throttled);
        for waiting in waits.clone() {
            let stretch = waiting.stretch;
            takers.all_ns = takers.all_ns.saturating_add(stretch.all.runqueue_ns.max(stretch.runqueue_ns));
            takers.recorded_ns = takers.recorded_ns.saturating_add(stretch.runqueue_ns);
            takers.records += u64::from(stretch.runqueue_ns > 0);
            let mut left_ns = stretch.runqueue_ns;
            for taker in stretch.taken_by.iter().flatten().filter(|taker| taker.thread != victim) {
                let ns = taker.ns.min(left_ns);
                left_ns -= ns;
                takers.add(situation, taker.thread, ns);
            }
            if stretch.taken_by.iter().all(Option::is_some) {
                takers.others_ns = takers.others_ns.saturating_add(left_ns);
            }
        }
        takers.cited = longest(waits, |waiting| waiting.stretch.runqueue_ns);
        takers
    }

    fn add(&mut self, situation: &Situation<'_>, thread: ThreadId, ns: u64) {
        let is_idle = situation.window.threads.get(&thread).is_none_or(|thread| thread.tid == 0);
        if situation.is_tracer(thread) {
            self.tracer_ns = self.tracer_ns.saturating_add(ns);
        } else if !is_idle {
            let sum = self.threads.entry(thread).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// What those took who are on record by name.
    pub fn named_ns(&self) -> u64 {
        self.threads.values().fold(0, |sum, &ns| sum.saturating_add(ns))
    }

    /// What others than the tracer took.
    pub fn known_ns(&self) -> u64 {
        self.others_ns.saturating_add(self.named_ns())
    }

    /// The process that took most, its thread that took most, and the times of both.
    pub fn most(&self, situation: &Situation<'_>) -> Option<Most> {
        let mut processes: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for (&thread, &ns) in &self.threads {
            let sum = processes.entry(situation.process_id(thread)?).or_default();
            *sum = sum.saturating_add(ns);
        }
        let (&process, &process_ns) = processes.iter().max_by_key(|(_, ns)| **ns)?;
        let own = self.threads.iter().filter(|(thread, _)| situation.process_id(**thread) == Some(process));
        let (&thread, _) = own.max_by_key(|(_, ns)| **ns)?;
        Some(Most { thread, process_ns, processes: processes.len() })
    }
}

pub(super) struct Most {
    pub thread: ThreadId,
    pub process_ns: u64,
    pub processes: usize,
}
