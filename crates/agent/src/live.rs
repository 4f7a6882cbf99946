//! What is happening right now: totals for the live view, and a door for those who watch.

use std::time::Duration;

use gpuwhy_apis::row;
use gpuwhy_capture::TaskId;
use gpuwhy_model::{Call, Histogram, Losses, ThreadTimes, WaitReason};
use hashbrown::HashMap;

use crate::governor::{Counted, Usage};

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

/// Totals since the start.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub elapsed: Duration,
    pub seen: u64,
    pub stored: u64,
    pub losses: Losses,
    pub probes: usize,
    pub cost: Cost,
    /// Threads that are watched, with their last second.
    pub threads: Vec<LiveThread>,
    rows: HashMap<(u32, u16), LiveRow>,
    launches: HashMap<TaskId, Launches>,
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

/// What tracing costs.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// The share of its time that the thread lost from which most was taken, in the last second.
    pub worst: Option<(TaskId, f64)>,
    /// CPU time of the tracer itself as a share of one CPU, in the last second.
    pub agent: f64,
    /// The largest such share of a thread in any second, leaving out the first ones, in which the tracer finds its feet.
    pub most: f64,
    seconds: u32,
    agent_sum: f64,
}

impl Cost {
    /// CPU time of the tracer itself as a share of one CPU, on the whole.
    pub fn agent_mean(&self) -> f64 {
        self.agent_sum / f64::from(self.seconds.max(1))
    }
}

/// Threads to remember; counts may come in after a thread's end, and those that do would add up.
const MOST_THREADS: usize = 1 << 16;
/// Seconds until the tracer has settled.
const SETTLES: u32 = 3;

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
    pub fn add_thread(&mut self, task: TaskId, comm: &str, times: &ThreadTimes) {
        let Launches { ever, sync_ns } = self.launches.get(&task).copied().unwrap_or_default();
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
            pid: task.pid,
            tid: task.tid,
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

    pub fn thread_gone(&mut self, task: TaskId) {
        self.launches.remove(&task);
    }

    pub fn note_cost(&mut self, usage: &Usage, worst: Option<(TaskId, f64)>) {
        let Cost { most, seconds, agent_sum, .. } = self.cost;
        let share = worst.map_or(0.0, |(_, share)| share);
        let agent = usage.cpu_ns as f64 / usage.wall_ns.max(1) as f64;
        self.cost = Cost {
            worst,
            agent,
            most: if seconds >= SETTLES { most.max(share) } else { 0.0 },
            seconds: seconds + 1,
            agent_sum: agent_sum + agent,
        };
    }

    pub fn add(&mut self, counted: &Counted, comm: &str) {
        let delta = &counted.delta;
        self.seen += delta.count;
        let row = row(delta.row.into());
        let op = row.map_or("?", |row| row.api.name);
        if self.launches.len() >= MOST_THREADS {
            self.launches.clear();
        }
        let launches = self.launches.entry(delta.task).or_default();
        launches.ever |= row.is_some_and(|row| row.meaning().is_launch);
        if row.is_some_and(|row| row.meaning().is_wait) {
            launches.sync_ns += delta.sum_ns.saturating_sub(delta.runqueue_ns);
        }
        let entry = self.rows.entry((delta.task.pid, delta.row)).or_insert_with(|| LiveRow {
            pid: delta.task.pid,
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
        entry.count += counted.estimate;
        entry.variance += counted.variance;
        entry.recent += counted.estimate;
        entry.sum_ns += delta.sum_ns;
        entry.runqueue_ns += delta.runqueue_ns;
        entry.blocked_ns += delta.blocked_ns;
        entry.errors += delta.errors;
        entry.histogram.merge(&delta.histogram);
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
    use gpuwhy_capture::CountDelta;
    use gpuwhy_model::ThreadId;

    const TASK: TaskId = TaskId { pid: 7, tid: 8 };

    fn called(live: &mut Live, op: &str, sum_ns: u64) {
        let row = rows().position(|row| row.api.name == op).unwrap() as u16;
        let delta = CountDelta { task: TASK, row, count: 1, sum_ns, ..CountDelta::default() };
        live.add(&Counted::exactly(delta), "python");
    }

    fn times(wall_ns: u64) -> ThreadTimes {
        ThreadTimes::new(0, ThreadId(1), wall_ns)
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
        live.add_thread(TASK, "python", &times);
        assert_eq!(parts(&live.threads[0]), [30, 20, 30, 10, 10]);
        assert!(live.threads[0].launches);
    }

    #[test]
    fn clocks_that_disagree_still_add_up_to_the_wall_time() {
        let mut live = Live::default();
        called(&mut live, "cuStreamSynchronize", 900);
        let times = ThreadTimes { runqueue_ns: 80, in_calls_ns: 90, ..times(100) };
        live.add_thread(TASK, "python", &times);
        assert_eq!(parts(&live.threads[0]).iter().sum::<u64>(), 100);
        assert!(!live.threads[0].launches);
    }

    #[test]
    fn a_new_second_begins_without_threads_but_remembers_who_launches() {
        let mut live = Live::default();
        called(&mut live, "cuLaunchKernel", 20);
        live.add_thread(TASK, "python", &times(100));
        live.start_second();
        assert!(live.threads.is_empty());
        live.add_thread(TASK, "python", &times(100));
        assert!(live.threads[0].launches);
    }
}
