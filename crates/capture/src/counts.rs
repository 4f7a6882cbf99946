//! The exact counters: read from kernel memory that is mapped here, as far as it is used, without a system call per
//! counter.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context, Result};
use gpuwhy_model::Histogram;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use memmap2::{MmapOptions, MmapRaw};

use crate::skeleton::types::call_count;
use crate::wire::{Owner, TaskId};

/// What one thread did in one function since the last reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountDelta {
    pub task: TaskId,
    pub row: u16,
    pub thread_started_ns: u64,
    pub count: u64,
    pub sum_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub bytes: u64,
    pub errors: u64,
    pub histogram: Histogram,
}

/// How often one thread has called one function so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    pub task: TaskId,
    pub row: u16,
    pub count: u64,
}

/// So many slots are mapped at once: always whole pages.
const WINDOW: u32 = 512;

/// The counter slots, and what they held when last read.
pub struct CallCounts {
    counts: MapHandle,
    /// Slots that have been used or are the next to be, [`WINDOW`] by [`WINDOW`]: what is mapped counts as memory.
    windows: Vec<MmapRaw>,
    free_slots: MapHandle,
    last: HashMap<u32, call_count>,
    by_owner: HashMap<Owner, Vec<u32>>,
    /// Slots are handed out in order and re-used last, so those behind it have never been used.
    used: u32,
    slots: u32,
    /// Whether all slots have been looked for that were handed out before the records at hand.
    found_all: bool,
}

impl CallCounts {
    pub fn new(counts: MapHandle, free_slots: MapHandle) -> Result<Self> {
        let slots = counts.max_entries();
        let mut counts = Self {
            counts,
            windows: Vec::new(),
            free_slots,
            last: HashMap::new(),
            by_owner: HashMap::new(),
            used: 0,
            slots,
            found_all: false,
        };
        counts.map_window()?;
        // Slot 0 means "none yet".
        for slot in 1..slots {
            counts.free(slot)?;
        }
        Ok(counts)
    }

    fn map_window(&mut self) -> Result<()> {
        let first = self.windows.len() as u32 * WINDOW;
        let bytes = |slots: u32| slots as usize * size_of::<call_count>();
        let mut window = MmapOptions::new();
        window.offset(bytes(first) as u64).len(bytes(WINDOW.min(self.slots - first)));
        self.windows.push(window.map_raw(self.counts.as_fd().as_raw_fd()).context("map call counters")?);
        Ok(())
    }

    fn is_mapped(&self, slot: u32) -> bool {
        (slot / WINDOW) < self.windows.len() as u32
    }

    fn free(&self, slot: u32) -> Result<()> {
        self.free_slots.update(&[], &slot.to_ne_bytes(), MapFlags::ANY).context("free a counter slot")
    }

    /// Changes since the last reading of counters that are `wanted`, also those that have none. `epoch` is the bucket
    /// of time that just ended.
    pub fn read(&mut self, epoch: u64, wanted: impl Fn(TaskId, u16) -> bool) -> Vec<CountDelta> {
        self.find_new();
        let slots: Vec<u32> = self.last.keys().copied().collect();
        let is_wanted = |slot: &u32| {
            let (task, row) = self.who(*slot);
            wanted(task, row)
        };
        let slots: Vec<u32> = slots.into_iter().filter(is_wanted).collect();
        slots.into_iter().filter_map(|slot| self.delta(slot, epoch)).collect()
    }

    /// The totals of all counters.
    pub fn hits(&mut self) -> Vec<Hits> {
        self.find_new();
        let hits = |&slot: &u32| {
            let (task, row) = self.who(slot);
            // SAFETY: the slot is inside the mapping, and any bytes are a valid number.
            let count = unsafe { (&raw const (*self.slot(slot)).count).read_volatile() };
            Hits { task, row, count }
        };
        self.last.keys().map(hits).collect()
    }

    /// From now on calls of this process and function get a record when they take at least this long.
    pub fn keep_from(&mut self, pid: u32, row: u16, min_ns: u64) {
        for &slot in self.last.keys() {
            let (task, of) = self.who(slot);
            if task.pid == pid && of == row {
                // SAFETY: the slot is inside the mapping, and the kernel side only reads this field of a used slot.
                unsafe { (&raw mut (*self.slot(slot)).keep_min_ns).write_volatile(min_ns) };
            }
        }
    }

    fn who(&self, slot: u32) -> (TaskId, u16) {
        let counter = self.slot(slot);
        // SAFETY: the slot is inside the mapping, and any bytes are valid numbers.
        let (pid, tid, api) = unsafe {
            (
                (&raw const (*counter).pid).read_volatile(),
                (&raw const (*counter).tid).read_volatile(),
                (&raw const (*counter).api).read_volatile(),
            )
        };
        (TaskId { pid, tid }, api.wrapping_sub(1) as u16)
    }

    /// New records are at hand: threads whose end is among them may have slots that were not seen yet.
    pub fn expect_new(&mut self) {
        self.found_all = false;
    }

    /// The last changes of a thread, or program, that is gone; its slots are free again. `epoch` is the present bucket.
    pub fn close(&mut self, owner: Owner, epoch: u64) -> Vec<CountDelta> {
        if !std::mem::replace(&mut self.found_all, true) {
            self.find_new();
        }
        let slots = self.by_owner.remove(&owner).unwrap_or_default();
        let mut deltas = Vec::new();
        for slot in slots {
            deltas.extend(self.delta(slot, epoch));
            self.last.remove(&slot);
            // SAFETY: the slot is inside the mapping, and its owner, the only other writer, is gone.
            unsafe { self.slot(slot).write_volatile(call_count::default()) };
            if let Err(error) = self.free(slot) {
                tracing::warn!("{error:#}");
            }
        }
        deltas
    }

    pub fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.by_owner.keys().copied()
    }

    pub fn is_nearly_full(&self) -> bool {
        self.last.len() * 4 > self.slots as usize * 3
    }

    fn find_new(&mut self) {
        for slot in 1..self.slots {
            let seen = self.last.contains_key(&slot);
            if seen {
                continue;
            }
            if !self.is_mapped(slot)
                && let Err(error) = self.map_window()
            {
                return tracing::warn!("{error:#}");
            }
            if self.is_free(slot) {
                if slot > self.used {
                    break;
                }
                continue;
            }
            let current = self.load(slot);
            self.used = self.used.max(slot);
            let task = TaskId { pid: current.pid, tid: current.tid };
            self.by_owner.entry(Owner { task, image: current.image }).or_default().push(slot);
            self.last.insert(slot, call_count::default());
        }
    }

    fn delta(&mut self, slot: u32, epoch: u64) -> Option<CountDelta> {
        let current = self.load(slot);
        let last = self.last.get_mut(&slot)?;
        let mut histogram = Histogram::default();
        for (index, (now, before)) in current.buckets.iter().zip(&last.buckets).enumerate() {
            histogram.add(index as u8, now.wrapping_sub(*before).into());
        }
        // The thread may already have entered the next bucket; then its extremes of the ended one are still there.
        let extremes = [epoch, epoch + 1]
            .into_iter()
            .map(|epoch| (epoch, current.extremes[epoch as usize & 1]))
            .filter(|(epoch, extremes)| extremes.epoch == *epoch)
            .map(|(_, extremes)| (extremes.min_ns, extremes.max_ns))
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .unwrap_or_else(|| histogram.bounds_ns());
        let delta = CountDelta {
            task: TaskId { pid: current.pid, tid: current.tid },
            row: current.api.wrapping_sub(1) as u16,
            thread_started_ns: current.thread_started_ns,
            count: current.count - last.count,
            sum_ns: current.sum_ns - last.sum_ns,
            min_ns: extremes.0,
            max_ns: extremes.1,
            runqueue_ns: current.runqueue_ns - last.runqueue_ns,
            blocked_ns: current.blocked_ns - last.blocked_ns,
            bytes: current.bytes - last.bytes,
            errors: current.errors - last.errors,
            histogram,
        };
        *last = current;
        Some(delta)
    }

    fn slot(&self, slot: u32) -> *mut call_count {
        let window = &self.windows[(slot / WINDOW) as usize];
        // SAFETY: callers pass slots below `self.slots`, and each window has all of its slots.
        unsafe { window.as_mut_ptr().cast::<call_count>().add((slot % WINDOW) as usize) }
    }

    fn is_free(&self, slot: u32) -> bool {
        // SAFETY: the slot is inside the mapping, and any bytes are a valid number.
        unsafe { (&raw const (*self.slot(slot)).api).read_volatile() == 0 }
    }

    /// A copy; fields may be a call apart from each other, which the next reading evens out.
    fn load(&self, slot: u32) -> call_count {
        // SAFETY: the slot is inside the mapping, page-aligned, and any bytes are a valid call_count.
        unsafe { self.slot(slot).read_volatile() }
    }
}
