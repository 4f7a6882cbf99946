//! What the kernel says about programs: how long and how often they ran, and how often they were skipped.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::Result;
use libbpf_rs::libbpf_sys;

/// How long and how often programs have run, all CPUs together, while that was timed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Runs {
    pub ns: u64,
    pub count: u64,
}

impl Runs {
    pub fn since(self, before: Self) -> Self {
        Self { ns: self.ns.saturating_sub(before.ns), count: self.count.saturating_sub(before.count) }
    }

    pub fn mean_ns(self) -> f64 {
        self.ns as f64 / self.count.max(1) as f64
    }
}

/// Lets the kernel time BPF programs until the result is dropped.
pub fn time_programs() -> Result<OwnedFd> {
    // SAFETY: the call takes a number and returns a new descriptor or an error.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    anyhow::ensure!(fd >= 0, "the kernel does not time BPF programs: {}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn run_time<'a>(programs: impl Iterator<Item = BorrowedFd<'a>>) -> Runs {
    programs
        .map(program_info)
        .fold(Runs::default(), |sum, info| Runs { ns: sum.ns + info.run_time_ns, count: sum.count + info.run_cnt })
}

/// What the kernel says about a program; all zeros when it says nothing.
pub fn program_info(program: BorrowedFd<'_>) -> libbpf_sys::bpf_prog_info {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is writable for `length` bytes; all its pointers are null with a count of 0.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) };
    if result == 0 { info } else { libbpf_sys::bpf_prog_info::default() }
}
