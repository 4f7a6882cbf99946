//! Which number a stack has in this session.

use gpuwhy_capture::StackHash;
use gpuwhy_model::{Forgotten, Name, Row, Stack, StackId};
use hashbrown::HashMap;

/// Stacks of this session by the hash that the kernel side calls them by.
#[derive(Default)]
pub struct StackNumbers {
    known: HashMap<StackHash, Known>,
    /// Numbers given out so far.
    met: u32,
}

struct Known {
    id: StackId,
    has_frames: bool,
}

/// More than the kernel side believes to be known here, so that it tells again what is forgotten.
const MOST_KNOWN: usize = 1 << 16;

impl StackNumbers {
    /// The number of a stack that a record names; its frames may come later.
    pub fn id(&mut self, hash: StackHash) -> StackId {
        self.known(hash).id
    }

    /// The frames of a stack; the first ones stay.
    pub fn frames(&mut self, hash: StackHash, stack: Stack) -> Option<Row> {
        let known = self.known(hash);
        let had_frames = std::mem::replace(&mut known.has_frames, true);
        (!had_frames).then_some(Row::Stack { id: known.id, stack })
    }

    pub fn is_full(&self) -> bool {
        self.known.len() >= MOST_KNOWN
    }

    /// What is met again gets another number, and its frames once more.
    pub fn forget(&mut self) -> Row {
        self.known.clear();
        Row::Name(Name::Forgotten(Forgotten::Stacks))
    }

    fn known(&mut self, hash: StackHash) -> &mut Known {
        self.known.entry(hash).or_insert_with(|| {
            self.met += 1;
            Known { id: StackId(self.met), has_frames: false }
        })
    }
}
