//! The flight recorder: the last calls that got no record, in kernel memory that is mapped and read only when something
//! has gone wrong. Writing to it costs a call a few stores; old calls are overwritten by new ones.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle};
use memmap2::{MmapOptions, MmapRaw};

use crate::skeleton::types::{call_record, detailed_call, record_kind};
use crate::wire::{RawCall, Record};

pub struct Recorder {
    map: MapHandle,
}

impl Recorder {
    pub fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// Calls of a process that ended after this moment, in no order.
    pub fn read(&self, pid: u32, after_ns: u64) -> Result<Vec<RawCall>> {
        let slots = self.map.max_entries() as usize;
        let length = slots * size_of::<detailed_call>();
        let memory = MmapOptions::new().len(length).map_raw_read_only(self.map.as_fd().as_raw_fd());
        let calls = Calls { memory: memory.context("map the recorder")? };
        let calls = (0..slots).filter_map(|slot| calls.call(slot));
        Ok(calls.filter(|call| call.task.pid == pid && call.end_ns > after_ns).collect())
    }
}

/// The recorder's memory, while it is read.
struct Calls {
    memory: MmapRaw,
}

impl Calls {
    /// `None` for a place that is empty or being written to.
    fn call(&self, slot: usize) -> Option<RawCall> {
        // SAFETY: the slot is inside the mapping, and any bytes are a valid detailed_call.
        let place = unsafe { self.memory.as_ptr().cast::<detailed_call>().add(slot) };
        // SAFETY: as above.
        let copy = unsafe { place.read_volatile() };
        // SAFETY: as above.
        let head = unsafe { (&raw const (*place).call.head).read_volatile() };
        if (head.kind, head.at_ns) != (copy.call.head.kind, copy.call.head.at_ns) {
            return None;
        }
        let length = match record_kind(copy.call.head.kind) {
            record_kind::RECORD_CALL => size_of::<call_record>(),
            record_kind::RECORD_DETAILED_CALL => size_of::<detailed_call>(),
            _ => return None,
        };
        // SAFETY: the copy is at least this long and consists of integers.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const copy).cast::<u8>(), length) };
        match Record::decode(bytes) {
            Some(Record::Call(call)) => Some(call),
            _ => None,
        }
    }
}
