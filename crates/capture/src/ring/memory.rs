//! One ring as it lies in memory: a page that says how far it was read, one that says how far it was written, and the
//! records after it.
//!
//! libbpf maps the records twice in a row, so that one that wraps around the end is in one piece. All pages then count
//! twice as memory of this process. Here they are mapped once, and a record that wraps around is copied.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle};
use memmap2::{MmapOptions, MmapRaw};

use super::page_size;

/// What stands before each record: its length with two flags, and a number of the kernel's.
const HEAD: u64 = 8;
const IS_BEING_WRITTEN: u32 = 1 << 31;
const IS_DISCARDED: u32 = 1 << 30;

pub struct RingMemory {
    /// How far it was read: only we write that.
    read: MmapRaw,
    /// How far it was written; the records begin a page later.
    written: MmapRaw,
    page: usize,
    /// Bytes of records, a power of two.
    size: u64,
    /// The last record that wrapped around the end, in one piece.
    wrapped: Vec<u8>,
}

impl RingMemory {
    pub fn map(ring: &MapHandle) -> Result<Self> {
        let (page, size) = (page_size(), ring.max_entries());
        let fd = ring.as_fd().as_raw_fd();
        let read = MmapOptions::new().len(page).map_raw(fd).context("map how far a ring was read")?;
        let mut after_it = MmapOptions::new();
        after_it.offset(page as u64).len(page + size as usize);
        let written = after_it.map_raw_read_only(fd).context("map a ring")?;
        Ok(Self { read, written, page, size: size.into(), wrapped: Vec::new() })
    }

    /// Hands out the next records, at most so many, and frees their place. Returns how many there were.
    pub fn consume(&mut self, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut position = self.read_up_to().load(Ordering::Relaxed);
        let mut count = 0;
        while count < most && position < self.written_up_to().load(Ordering::Acquire) {
            let head = self.head(position).load(Ordering::Acquire);
            if head & IS_BEING_WRITTEN != 0 {
                break;
            }
            let length = u64::from(head & !IS_DISCARDED);
            if head & IS_DISCARDED == 0 {
                take(self.record(position + HEAD, length.min(self.size) as usize));
            }
            count += 1;
            position += (HEAD + length).next_multiple_of(HEAD);
            self.read_up_to().store(position, Ordering::Release);
        }
        count
    }

    fn read_up_to(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives, begins with this number, and others only read it.
        unsafe { AtomicU64::from_ptr(self.read.as_mut_ptr().cast()) }
    }

    fn written_up_to(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self` lives and begins with this number, which is only loaded here.
        unsafe { AtomicU64::from_ptr(self.written.as_mut_ptr().cast()) }
    }

    /// The head of the record at a position. Heads are aligned, so that none wraps around.
    fn head(&self, position: u64) -> &AtomicU32 {
        // SAFETY: the place is aligned and inside the mapping, and is only loaded here.
        unsafe { AtomicU32::from_ptr(self.records().add(self.offset(position)).cast()) }
    }

    /// Bytes of a record that was written: the kernel does not touch them before it is told that they were read.
    fn record(&mut self, position: u64, length: usize) -> &[u8] {
        let offset = self.offset(position);
        let before_end = length.min(self.size as usize - offset);
        // SAFETY: both pieces lie inside the mapping, and nobody writes to them while they are borrowed.
        let (piece, rest) = unsafe {
            let from = |offset, length| std::slice::from_raw_parts(self.records().add(offset).cast_const(), length);
            (from(offset, before_end), from(0, length - before_end))
        };
        if rest.is_empty() {
            return piece;
        }
        self.wrapped.clear();
        self.wrapped.extend_from_slice(piece);
        self.wrapped.extend_from_slice(rest);
        &self.wrapped
    }

    fn offset(&self, position: u64) -> usize {
        (position & (self.size - 1)) as usize
    }

    fn records(&self) -> *mut u8 {
        // SAFETY: a page was mapped before the records.
        unsafe { self.written.as_mut_ptr().add(self.page) }
    }
}
