//! The rings the kernel writes records to: one per group of CPUs, drained in batches, in the order of time.

mod memory;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::skeleton::types::limits;
use crate::wire::Record;
use memory::RingMemory;

/// Rings to create before the programs are loaded, and to read afterwards.
pub struct Rings {
    maps: Vec<MapHandle>,
}

impl Rings {
    /// A power of two of them, so that a mask picks a CPU's ring.
    pub fn create(cpus: usize, total_bytes: usize) -> Result<Self> {
        let shards = cpus.next_power_of_two().clamp(1, limits::MAX_RINGS.0 as usize);
        let bytes = (total_bytes / shards).next_power_of_two().max(page_size());
        // SAFETY: a struct of integers, for which zero is the documented default; `sz` is set below.
        let mut options: libbpf_rs::libbpf_sys::bpf_map_create_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as u64;
        let maps = (0..shards)
            .map(|_| MapHandle::create(MapType::RingBuf, Some("ring"), 0, 0, bytes as u32, &options))
            .collect::<Result<_, _>>()
            .with_context(|| format!("create {shards} rings of {bytes} bytes"))?;
        Ok(Self { maps })
    }

    /// Enough for each CPU to write 100,000 records a second for 200 ms while nobody drains.
    pub fn default_bytes() -> usize {
        const PER_CPU: usize = 2 << 20;
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1).clamp(8, limits::MAX_RINGS.0 as usize);
        cpus * PER_CPU
    }

    pub fn mask(&self) -> u32 {
        self.maps.len() as u32 - 1
    }

    /// Puts the rings where the programs look for them.
    pub fn install(&self, outer: &MapHandle) -> Result<()> {
        for (index, ring) in self.maps.iter().enumerate() {
            let fd = ring.as_fd().as_raw_fd();
            outer.update(&(index as u32).to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).context("install a ring")?;
        }
        Ok(())
    }

    pub fn reader(&self) -> Result<RingReader> {
        let rings = self.maps.iter().map(RingMemory::map).collect::<Result<_>>()?;
        let bell = Bell::new()?;
        let watched = self.maps.iter().map(AsFd::as_fd).chain([bell.0.as_fd()]);
        Ok(RingReader { rings, alarm: alarm(watched)?, bell, waiting: Vec::new(), malformed: 0 })
    }
}

/// Reads all rings from one thread.
pub struct RingReader {
    rings: Vec<RingMemory>,
    alarm: OwnedFd,
    bell: Bell,
    /// Read already, but something earlier may still follow.
    waiting: Vec<Record>,
    malformed: u64,
}

/// Ends the reader's sleep from another thread.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    fn new() -> Result<Self> {
        // SAFETY: eventfd has no preconditions.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("create an eventfd");
        }
        // SAFETY: the descriptor was just created and is nobody else's.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    pub fn ring(&self) {
        let one = 1u64;
        // It fails only when nobody has slept for 2^64 rings.
        // SAFETY: the descriptor is open, and there are as many bytes to read.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
    }
}

/// At most this many records of one ring a pass, so that a flood on one CPU cannot hold up the others.
const PASS: usize = 1 << 15;

impl RingReader {
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Sleeps until the time is up, the kernel side has something urgent, or the bell rings.
    pub fn wait(&self, time: Duration) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let (alarm, no_mask) = (self.alarm.as_raw_fd(), ptr::null::<libc::sigset_t>());
        // To the nanosecond: what is left of a millisecond would be waited for in a busy loop.
        // SAFETY: the descriptor is an epoll, `event` has room for the one event asked for, and no mask is of no length.
        unsafe { libc::syscall(libc::SYS_epoll_pwait2, alarm, &raw mut event, 1, &raw const time, no_mask, 0usize) };
    }

    /// What was written before the call, in the order of time. Rings are read one after the other, so a record that
    /// was written during the pass waits for the next one: nothing earlier can follow.
    pub fn drain(&mut self) -> Vec<Record> {
        self.pass(monotonic_ns())
    }

    /// Everything, once nobody writes any more.
    pub fn drain_all(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        loop {
            let more = self.pass(u64::MAX);
            if more.is_empty() && self.waiting.is_empty() {
                return records;
            }
            records.extend(more);
        }
    }

    fn pass(&mut self, now_ns: u64) -> Vec<Record> {
        let mut horizon_ns = now_ns;
        for ring in &mut self.rings {
            let mut last_ns = now_ns;
            let read = ring.consume(PASS, |bytes| match Record::decode(bytes) {
                Some(record) => {
                    last_ns = record.at_ns();
                    self.waiting.push(record);
                }
                None => self.malformed += 1,
            });
            // A ring that was not read to its end has more that is later than what was read.
            if read >= PASS {
                horizon_ns = horizon_ns.min(last_ns);
            }
        }
        self.waiting.sort_by_key(Record::at_ns);
        let ready = self.waiting.partition_point(|record| record.at_ns() <= horizon_ns);
        let later = self.waiting.split_off(ready);
        std::mem::replace(&mut self.waiting, later)
    }

    pub fn malformed(&self) -> u64 {
        self.malformed
    }
}

/// Goes off once for each wake-up from the kernel side, and not for records that were written without one; and once for each
/// ring of the bell.
fn alarm<'a>(watched: impl Iterator<Item = BorrowedFd<'a>>) -> Result<OwnedFd> {
    // SAFETY: epoll_create1 has no preconditions.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).context("create an epoll");
    }
    // SAFETY: the descriptor was just created and is nobody else's.
    let alarm = unsafe { OwnedFd::from_raw_fd(fd) };
    for one in watched {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: both descriptors are open and `event` outlives the call.
        if unsafe { libc::epoll_ctl(alarm.as_raw_fd(), libc::EPOLL_CTL_ADD, one.as_raw_fd(), &mut event) } != 0 {
            return Err(io::Error::last_os_error()).context("watch a ring");
        }
    }
    Ok(alarm)
}

/// The clock of every record.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize
}
