//! Threads whose work can wait for anybody else's.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::clock;

static CPU_NS: AtomicU64 = AtomicU64::new(0);

/// CPU time that such threads have taken so far.
pub fn background_cpu_ns() -> u64 {
    CPU_NS.load(Ordering::Relaxed)
}

/// The calling thread, from now on.
pub struct Background {
    noted_ns: u64,
}

/// Lets somebody end the patience of such a thread.
#[derive(Default)]
pub struct Urgency(AtomicI32);

impl Urgency {
    /// To be said by the thread itself.
    pub fn is_mine(&self) {
        // SAFETY: gettid has no preconditions.
        self.0.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    }

    /// Somebody waits for it now: it gets the CPU like any other thread.
    pub fn raise(&self) {
        if let tid @ 1.. = self.0.load(Ordering::Relaxed) {
            // SAFETY: setpriority has no preconditions. A plain user may not do this, and waits longer.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as u32, 0) };
        }
    }
}

impl Background {
    /// Lets the programs that are traced, and the rest of the tracer, have the CPU first.
    pub fn begin() -> Self {
        const NICER: i32 = 10;
        // SAFETY: setpriority has no preconditions; 0 is the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICER) };
        Self { noted_ns: clock::read(libc::CLOCK_THREAD_CPUTIME_ID) }
    }

    /// Puts on the account what was used since the last time.
    pub fn note(&mut self) {
        let now_ns = clock::read(libc::CLOCK_THREAD_CPUTIME_ID);
        CPU_NS.fetch_add(now_ns - std::mem::replace(&mut self.noted_ns, now_ns), Ordering::Relaxed);
    }
}
