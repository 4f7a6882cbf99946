//! What is to be kept of a cluster, and what it goes on with after a restart.

use hashbrown::HashMap;

use crate::cluster::{Event, Why};
use crate::digest::Worker;
use crate::span::Sums;

/// More events wait for nobody.
const MOST_EVENTS: usize = 100_000;

/// A worker that is told of, under its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub id: u64,
    pub node: String,
    pub worker: Worker,
    /// When it was first heard, by the clock here.
    pub first_ns: u64,
}

#[derive(Debug, Default)]
pub struct News {
    /// By window and worker.
    pub sums: HashMap<(u64, u64), Sums>,
    /// Workers that are new.
    pub workers: Vec<Told>,
    pub events: Vec<Event>,
    /// What each worker told last, by its own clock: what is older has been counted.
    pub told: HashMap<u64, u64>,
}

/// Who is late: in which communicator as which rank, or, where it waits for nobody, slow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    pub node: String,
    pub pid: u32,
    pub seat: Option<(u64, u32)>,
}

/// What was known before a restart.
#[derive(Debug, Default)]
pub struct Before {
    /// Workers, with what they told last by their own clocks.
    pub workers: Vec<(Told, u64)>,
    /// Who was late, and since when.
    pub late: Vec<(Late, u64)>,
    /// What nodes had found a short while ago, about which worker.
    pub findings: Vec<(String, u32, Why)>,
}

impl Late {
    pub fn slow(node: &str, pid: u32) -> Self {
        Self { node: node.to_owned(), pid, seat: None }
    }
}

impl News {
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.workers.is_empty() && self.events.is_empty()
    }

    pub(crate) fn add(&mut self, window_ns: u64, id: u64, sums: &Sums) {
        self.sums.entry((window_ns, id)).or_default().add(sums);
    }

    pub(crate) fn tell(&mut self, event: &Event) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(event.clone());
        }
    }

    pub(crate) fn put_back(&mut self, earlier: Self) {
        let newer = std::mem::replace(self, earlier);
        newer.sums.into_iter().for_each(|((window_ns, id), sums)| self.add(window_ns, id, &sums));
        self.workers.extend(newer.workers);
        newer.events.iter().for_each(|event| self.tell(event));
    }
}
