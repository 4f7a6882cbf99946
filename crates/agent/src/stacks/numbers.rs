//! What stacks are called in the trace file.

use gpuwhy_capture::StackHash;
use gpuwhy_model::{Stack, StackId};
use gpuwhy_store::{StoreError, Writer};
use hashbrown::HashMap;

/// Stacks of this session by the hash that the kernel side calls them by.
#[derive(Default)]
pub struct StackNumbers {
    known: HashMap<StackHash, Known>,
    epoch: u32,
    has_forgotten: bool,
}

struct Known {
    id: StackId,
    is_written: bool,
}

/// More than the kernel side believes to be known here, so that it tells again what is forgotten.
const MOST_KNOWN: usize = 1 << 16;

impl StackNumbers {
    /// The number of a stack that a record names; its frames may come later.
    pub fn id(&mut self, hash: StackHash, writer: &mut Writer) -> Result<StackId, StoreError> {
        Ok(self.known(hash, writer)?.id)
    }

    pub fn optional(&mut self, hash: Option<StackHash>, writer: &mut Writer) -> Result<Option<StackId>, StoreError> {
        hash.map(|hash| self.id(hash, writer)).transpose()
    }

    /// Writes the frames of a stack.
    pub fn write(&mut self, hash: StackHash, stack: &Stack, writer: &mut Writer) -> Result<(), StoreError> {
        let known = self.known(hash, writer)?;
        if std::mem::replace(&mut known.is_written, true) {
            return Ok(());
        }
        writer.stack(known.id, stack)
    }

    /// Whether the kernel side has to tell of stacks again, since this was last asked.
    pub fn has_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.has_forgotten)
    }

    fn known(&mut self, hash: StackHash, writer: &mut Writer) -> Result<&mut Known, StoreError> {
        if writer.stack_epoch() != self.epoch || self.known.len() >= MOST_KNOWN {
            self.epoch = writer.stack_epoch();
            self.known.clear();
            self.has_forgotten = true;
        }
        match self.known.entry(hash) {
            hashbrown::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            hashbrown::hash_map::Entry::Vacant(place) => {
                Ok(place.insert(Known { id: writer.reserve_stack()?, is_written: false }))
            }
        }
    }
}
