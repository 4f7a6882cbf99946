//! The numbers of the last second.

use std::cmp::Reverse;

use gpuwhy_agent::{Live, LiveRow, LiveThread};
use gpuwhy_model::{Totals, WaitReason};

#[derive(Clone, Debug, Default)]
pub struct Second {
    pub totals: Totals,
    pub calls: Vec<LiveRow>,
    /// Those that feed a GPU; while nobody does, those that make calls.
    pub threads: Vec<LiveThread>,
}

impl From<&Live> for Second {
    fn from(live: &Live) -> Self {
        Self { totals: live.totals.clone(), calls: live.rows().cloned().collect(), threads: shown(&live.threads) }
    }
}

impl Second {
    /// Calls in the last second.
    pub fn rate(&self) -> u64 {
        self.calls.iter().map(|row| row.recent).sum()
    }
}

/// Always in the same order, so that a line stays where it is.
fn shown(threads: &[LiveThread]) -> Vec<LiveThread> {
    let is_dispatcher = |thread: &&LiveThread| thread.launches;
    let calls = |thread: &&LiveThread| thread.in_calls_ns + thread.gpu_wait_ns > 0;
    let mut shown: Vec<_> = threads.iter().filter(is_dispatcher).cloned().collect();
    if shown.is_empty() {
        shown = threads.iter().filter(calls).cloned().collect();
    }
    shown.sort_by_key(|thread| (thread.pid, thread.tid));
    shown
}

/// Running, in calls, waiting for the GPU, blocked, waiting for a CPU.
pub fn parts(thread: &LiveThread) -> [u64; 5] {
    [thread.running_ns, thread.in_calls_ns, thread.gpu_wait_ns, thread.blocked_ns, thread.runqueue_ns]
}

/// Shares a number of characters out; those that are left over go to the parts that were cut most.
pub fn split(parts: [u64; 5], width: usize) -> [usize; 5] {
    let total: u128 = parts.iter().map(|&part| u128::from(part)).sum();
    if total == 0 {
        return [0; 5];
    }
    let scaled = parts.map(|part| u128::from(part) * width as u128);
    let mut lengths = scaled.map(|part| (part / total) as usize);
    let mut by_rest = [0, 1, 2, 3, 4];
    by_rest.sort_by_key(|&index| Reverse(scaled[index] % total));
    let left = width - lengths.iter().sum::<usize>();
    by_rest.iter().take(left).for_each(|&index| lengths[index] += 1);
    lengths
}

/// Where most of a thread's second went, in words.
pub fn main_share(thread: &LiveThread) -> String {
    const NAMES: [&str; 5] = ["running", "in GPU calls", "waits for GPU", "blocked", "waits for CPU"];
    let parts = parts(thread);
    let Some(largest) = (0..parts.len()).max_by_key(|&index| parts[index]).filter(|&index| parts[index] > 0) else {
        return String::new();
    };
    let percent = parts[largest] * 100 / thread.wall_ns.max(1);
    let reason = if NAMES[largest] == "blocked" { main_reason(thread) } else { String::new() };
    format!("{percent:>3} % {}{reason}", NAMES[largest])
}

fn main_reason(thread: &LiveThread) -> String {
    let largest = WaitReason::ALL.iter().max_by_key(|&&reason| thread.blocked_by[reason as usize]);
    largest.map(|reason| format!(": {reason}")).unwrap_or_default()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn thread(pid: u32, comm: &str, parts: [u64; 5]) -> LiveThread {
        let [running_ns, in_calls_ns, gpu_wait_ns, blocked_ns, runqueue_ns] = parts;
        let mut blocked_by = [0; WaitReason::COUNT];
        blocked_by[WaitReason::Stream as usize] = blocked_ns;
        LiveThread {
            pid,
            tid: pid,
            comm: comm.into(),
            launches: true,
            wall_ns: parts.iter().sum(),
            running_ns,
            in_calls_ns,
            gpu_wait_ns,
            blocked_ns,
            runqueue_ns,
            blocked_by,
            tracer_ns: 0,
        }
    }

    #[test]
    fn a_bar_is_as_long_as_it_should_be_whatever_the_parts() {
        for parts in [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [333, 333, 334, 0, 0], [u64::MAX / 8, 1, 1, 1, 1]] {
            for width in 0..50 {
                assert_eq!(split(parts, width).iter().sum::<usize>(), width, "{parts:?}");
            }
        }
        assert_eq!(split([0; 5], 30), [0; 5]);
        assert_eq!(split([50, 25, 25, 0, 0], 8), [4, 2, 2, 0, 0]);
    }

    #[test]
    fn a_thread_is_described_by_where_most_of_its_time_went() {
        assert_eq!(main_share(&thread(1, "python", [10, 10, 10, 60, 10])), " 60 % blocked: stream");
        assert_eq!(main_share(&thread(1, "python", [10, 10, 80, 0, 0])), " 80 % waits for GPU");
        assert_eq!(main_share(&thread(1, "python", [0; 5])), "");
    }

    #[test]
    fn threads_that_only_make_calls_are_shown_while_nobody_launches() {
        let caller = LiveThread { launches: false, ..thread(2, "caller", [1, 1, 0, 0, 0]) };
        let idle = LiveThread { launches: false, ..thread(3, "idle", [1, 0, 0, 0, 0]) };
        let names = |threads: &[LiveThread]| shown(threads).into_iter().map(|one| one.comm).collect::<Vec<_>>();
        assert_eq!(names(&[idle.clone(), caller.clone()]), ["caller"]);
        assert_eq!(names(&[idle, caller, thread(1, "launcher", [1; 5])]), ["launcher"]);
    }
}
