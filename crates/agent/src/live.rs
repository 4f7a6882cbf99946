//! What is happening right now: totals for the live view, and a door for those who watch.

use gpuwhy_model::{Call, CallStats, Histogram, Meaning, OpId, ThreadId, ThreadTimes, Totals, WaitReason};
use hashbrown::HashMap;

/// Is told what the trace sees while it is taken.
pub trait Watch: Send {
    /// Whether [`Watch::call`] is of any use; calls are many.
    fn wants_calls(&self) -> bool {
        false
    }

    fn call(&mut self, _call: &CallSeen<'_>) {}

    /// About once a second.
    fn second(&mut self, _live: &Live) {}

    /// Something a person should know, in a sentence.
    fn note(&mut self, _text: &str) {}
}

/// A kept call with names in place of numbers.
pub struct CallSeen<'a> {
    pub call: &'a Call,
    pub pid: u32,
    pub tid: u32,
    pub comm: &'a str,
    pub op: &'static str,
    pub layer: &'static str,
}

/// What is happening, and what it has come to since the start.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub totals: Totals,
    /// Threads that are watched, with their last second.
    pub threads: Vec<LiveThread>,
    rows: HashMap<(u32, OpId), LiveRow>,
    launches: HashMap<ThreadId, Launches>,
}

/// Where a thread's last second went. The five parts add up to the wall time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveThread {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Whether it has ever started work on a GPU.
    pub launches: bool,
    pub wall_ns: u64,
    /// On a CPU, outside of traced calls.
    pub running_ns: u64,
    /// In traced calls that do not wait for the GPU.
    pub in_calls_ns: u64,
    /// In calls that wait for the GPU, at rest or not.
    pub gpu_wait_ns: u64,
    /// Off the CPU outside of traced calls.
    pub blocked_ns: u64,
    /// Runnable, but another thread had the CPU, or the quota was used up.
    pub runqueue_ns: u64,
    /// All blocked time by reason, in traced calls too.
    pub blocked_by: [u64; WaitReason::COUNT],
    /// What tracing took from it.
    pub tracer_ns: u64,
}

/// What a thread's calls say about it.
#[derive(Clone, Copy, Debug, Default)]
struct Launches {
    ever: bool,
    /// Time in calls that wait for the GPU, in this second.
    sync_ns: u64,
}

/// One function in one process.
#[derive(Clone, Debug)]
pub struct LiveRow {
    pub pid: u32,
    pub comm: String,
    pub op: &'static str,
    /// Calls made, as far as is known.
    pub count: u64,
    /// Of the count; 0 when every call was seen.
    pub variance: f64,
    /// Calls in the last second.
    pub recent: u64,
    pub sum_ns: u64,
    pub runqueue_ns: u64,
    pub blocked_ns: u64,
    pub errors: u64,
    pub histogram: Histogram,
}

impl Live {
    pub fn start_second(&mut self) {
        for row in self.rows.values_mut() {
            row.recent = 0;
        }
        for launches in self.launches.values_mut() {
            launches.sync_ns = 0;
        }
        self.threads.clear();
    }

    /// What a thread did since it was last told of.
    pub fn add_thread(&mut self, pid: u32, tid: u32, comm: &str, times: &ThreadTimes) {
        let Launches { ever, sync_ns } = self.launches.get(&times.thread).copied().unwrap_or_default();
        let mut left_ns = times.wall_ns;
        let mut part = |ns: u64| {
            let ns = ns.min(left_ns);
            left_ns -= ns;
            ns
        };
        let blocked_ns: u64 = times.blocked_ns.iter().sum();
        let runqueue_ns = part(times.runqueue_ns);
        let blocked_ns = part(blocked_ns.saturating_sub(times.in_calls_blocked_ns));
        let in_calls_ns = times.in_calls_ns.saturating_sub(times.in_calls_runqueue_ns);
        let gpu_wait_ns = part(sync_ns.min(in_calls_ns));
        let in_calls_ns = part(in_calls_ns - gpu_wait_ns);
        self.threads.push(LiveThread {
            pid,
            tid,
            comm: comm.to_owned(),
            launches: ever,
            wall_ns: times.wall_ns,
            running_ns: left_ns,
            in_calls_ns,
            gpu_wait_ns,
            blocked_ns,
            runqueue_ns,
            blocked_by: times.blocked_ns,
            tracer_ns: times.tracer_ns,
        });
    }

    pub fn thread_gone(&mut self, thread: ThreadId) {
        self.launches.remove(&thread);
    }

    /// Calls of one thread into one function, since they were last told of.
    pub fn add(&mut self, stats: &CallStats, op: &'static str, meaning: Meaning, pid: u32, comm: &str) {
        let launches = self.launches.entry(stats.thread).or_default();
        launches.ever |= meaning.is_launch;
        if meaning.is_wait {
            launches.sync_ns += stats.sum_ns.saturating_sub(stats.runqueue_ns);
        }
        let entry = self.rows.entry((pid, stats.op)).or_insert_with(|| LiveRow {
            pid,
            comm: comm.to_owned(),
            op,
            count: 0,
            variance: 0.0,
            recent: 0,
            sum_ns: 0,
            runqueue_ns: 0,
            blocked_ns: 0,
            errors: 0,
            histogram: Histogram::default(),
        });
        entry.count += stats.estimate;
        entry.variance += stats.variance;
        entry.recent += stats.estimate;
        entry.sum_ns += stats.sum_ns;
        entry.runqueue_ns += stats.runqueue_ns;
        entry.blocked_ns += stats.blocked_ns;
        entry.errors += stats.errors;
        entry.histogram.merge(&stats.histogram);
    }

    /// Every function of every process that was called, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &LiveRow> {
        self.rows.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_apis::rows;

    const THREAD: ThreadId = ThreadId(1);

    fn called(live: &mut Live, op: &str, sum_ns: u64) {
        let (index, row) = rows().enumerate().find(|(_, row)| row.api.name == op).unwrap();
        let stats = CallStats::alike(0, THREAD, OpId(index as u32), 1, sum_ns);
        live.add(&stats, row.api.name, row.meaning(), 7, "python");
    }

    fn times(wall_ns: u64) -> ThreadTimes {
        ThreadTimes::new(0, THREAD, wall_ns)
    }

    fn parts(thread: &LiveThread) -> [u64; 5] {
        [thread.running_ns, thread.in_calls_ns, thread.gpu_wait_ns, thread.blocked_ns, thread.runqueue_ns]
    }

    #[test]
    fn a_threads_second_is_split_into_parts_that_add_up() {
        let mut live = Live::default();
        called(&mut live, "cuLaunchKernel", 20);
        called(&mut live, "cuStreamSynchronize", 30);
        let mut blocked_ns = [0; WaitReason::COUNT];
        blocked_ns[WaitReason::Futex as usize] = 25;
        let times = ThreadTimes {
            runqueue_ns: 10,
            in_calls_ns: 55,
            in_calls_runqueue_ns: 5,
            in_calls_blocked_ns: 15,
            blocked_ns,
            ..times(100)
        };
        live.add_thread(7, 8, "python", &times);
        assert_eq!(parts(&live.threads[0]), [30, 20, 30, 10, 10]);
        assert!(live.threads[0].launches);
    }

    #[test]
    fn clocks_that_disagree_still_add_up_to_the_wall_time() {
        let mut live = Live::default();
        called(&mut live, "cuStreamSynchronize", 900);
        let times = ThreadTimes { runqueue_ns: 80, in_calls_ns: 90, ..times(100) };
        live.add_thread(7, 8, "python", &times);
        assert_eq!(parts(&live.threads[0]).iter().sum::<u64>(), 100);
        assert!(!live.threads[0].launches);
    }

    #[test]
    fn a_new_second_begins_without_threads_but_remembers_who_launches() {
        let mut live = Live::default();
        called(&mut live, "cuLaunchKernel", 20);
        live.add_thread(7, 8, "python", &times(100));
        live.start_second();
        assert!(live.threads.is_empty());
        live.add_thread(7, 8, "python", &times(100));
        assert!(live.threads[0].launches);
    }
}
