//! Which rank a process is in a communicator that was made by splitting or shrinking another one: it follows from what all
//! ranks of that one said. The view `split_ranks` says the same of a trace file.

use gpuwhy_model::{OwnValues, ProcessId};
use hashbrown::HashMap;

use super::number;

/// So many splits of which not all ranks were seen are remembered, and so many ranks; then all are forgotten.
const MOST_OPEN: usize = 1 << 10;
const MOST_RANKS: usize = 1 << 14;

#[derive(Default)]
pub struct Splits {
    /// By the communicator that is split, and how many operations of it came before.
    open: HashMap<(u64, u64), Vec<Part>>,
    /// By process, its own name of the communicator, and the communicator: the rank, and of how many.
    ranks: HashMap<(ProcessId, u64, u64), (u32, u32)>,
}

/// What one rank of the communicator that is split has said. The order is that of the ranks of those that it makes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    child: u64,
    key: Option<i32>,
    rank: u32,
    process: ProcessId,
    handle: u64,
}

impl Splits {
    pub fn see(&mut self, process: ProcessId, handle: Option<u64>, own: &OwnValues) {
        let parent = own.value("comm_id_hash").zip(own.value("seq"));
        let (Some(parent), Some(child), Some(handle)) = (parent, own.value("child_id_hash"), handle) else { return };
        let (Some(rank), Some(ranks)) = (number(own, "rank"), number(own, "nranks")) else { return };
        if self.open.len() > MOST_OPEN {
            self.open.clear();
        }
        let key = number(own, "key").map(u32::cast_signed);
        let parts = self.open.entry(parent).or_default();
        parts.push(Part { child, key, rank, process, handle });
        let all = ranks.saturating_sub(number(own, "excluded").unwrap_or(0));
        if parts.len() >= all as usize {
            self.open.remove(&parent).into_iter().for_each(|parts| self.number(parts));
        }
    }

    fn number(&mut self, mut parts: Vec<Part>) {
        if self.ranks.len() > MOST_RANKS {
            self.ranks.clear();
        }
        parts.sort_unstable();
        for same in parts.chunk_by(|one, other| one.child == other.child) {
            let (ranks, all) = ((0..).zip(same), same.len() as u32);
            self.ranks.extend(ranks.map(|(rank, part)| ((part.process, part.handle, part.child), (rank, all))));
        }
    }

    /// The rank, and of how many.
    pub fn rank(&self, process: ProcessId, handle: u64, communicator: u64) -> Option<(u32, u32)> {
        self.ranks.get(&(process, handle, communicator)).copied()
    }

    pub fn forget(&mut self, gone: ProcessId) {
        self.ranks.retain(|(process, ..), _| *process != gone);
    }
}
