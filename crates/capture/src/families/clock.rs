//! The clocks that tick on each CPU for samples of what runs there.
//!
//! A program that does the same every 20 ms would always be met at the same point by a clock of 50 ticks a second. So the time
//! between ticks changes now and then, and there are two clocks: one of them is never long in step with a program.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{PERF_COUNT_SW_CPU_CLOCK, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr};

const CLOCKS: usize = 2;
/// Some 46 ticks a second, of both.
const BETWEEN_TICKS_NS: Range<u64> = 30_000_000..60_000_000;
const SET_PERIOD: libc::Ioctl = libc::_IOW::<u64>(b'$' as u32, 4);

/// Events of each CPU that is there.
pub struct Ticks(Vec<OwnedFd>);

impl Ticks {
    pub fn start() -> io::Result<Self> {
        let cpus = 0..libbpf_rs::num_possible_cpus().map_err(io::Error::other)? as i32;
        let ticks: Vec<io::Result<OwnedFd>> = cpus.flat_map(|cpu| [cpu; CLOCKS]).map(on_cpu).collect();
        // CPUs that are switched off have none.
        let is_off = |error: &io::Error| error.raw_os_error() == Some(libc::ENODEV);
        Ok(Self(ticks.into_iter().filter(|tick| !tick.as_ref().is_err_and(is_off)).collect::<io::Result<_>>()?))
    }

    /// For a program to be attached to each of them: its link closes what it is given.
    pub fn events(&self) -> impl Iterator<Item = io::Result<OwnedFd>> {
        self.0.iter().map(|tick| tick.as_fd().try_clone_to_owned())
    }

    /// From now on another time lies between ticks.
    pub fn vary(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|tick| {
            let period_ns = between_ticks_ns();
            // SAFETY: the descriptor is open, and the kernel reads a number that outlives the call.
            match unsafe { libc::ioctl(tick.as_raw_fd(), SET_PERIOD, &raw const period_ns) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
    }
}

fn on_cpu(cpu: i32) -> io::Result<OwnedFd> {
    let mut attributes = perf_event_attr {
        type_: PERF_TYPE_SOFTWARE,
        size: size_of::<perf_event_attr>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK.into(),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = between_ticks_ns();
    // SAFETY: the attributes outlive the call and say their own size; the result is a new descriptor or an error.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, u64::from(PERF_FLAG_FD_CLOEXEC))
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Anything within bounds: each state of the standard library's hashes has keys of its own.
fn between_ticks_ns() -> u64 {
    let Range { start, end } = BETWEEN_TICKS_NS;
    start + RandomState::new().hash_one(()) % (end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_ticks_are_seldom_alike() {
        let times: Vec<u64> = (0..1_000).map(|_| between_ticks_ns()).collect();
        assert!(times.iter().all(|ns| BETWEEN_TICKS_NS.contains(ns)));
        let mean_ns = times.iter().sum::<u64>() / 1_000;
        assert!((43_000_000..47_000_000).contains(&mean_ns), "{mean_ns}");
        let near = |pair: &[u64]| pair[0].abs_diff(pair[1]) < 300_000;
        assert!(times.windows(2).filter(|pair| near(pair)).count() < 60);
    }
}
