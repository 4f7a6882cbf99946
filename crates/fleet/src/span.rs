//! What a worker did in a stretch of time, as sums that can be added up over any longer one and over any workers.

use crate::digest::Digest;

/// Sums are taken over so much time, which begins at a multiple of it.
pub const WINDOW_NS: u64 = 10_000_000_000;

/// A second that lasted longer than this was not told as a whole.
const LONGEST_NS: u64 = 2_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// One of the sums, wherever it is kept or told.
#[derive(Debug)]
pub struct Sum {
    pub name: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
}

const fn sum(name: &'static str, unit: &'static str, help: &'static str) -> Sum {
    Sum { name, unit, help }
}

/// Every sum, in the order of [`Sums`].
pub const SUMS: &[Sum] = &[
    sum("told_ns", "ns", "Time that was told of."),
    sum("steps", "", "How often the program came round."),
    sum("steps_ns", "ns", "How long these took, all together."),
    sum("gpu_idle_ns", "ns", "Time in which the GPU is known to have had no work of this worker."),
    sum("gpu_busy_ns", "ns", "Time for which the worker waited for the GPU."),
    sum("running_ns", "ns", "Of the time of threads that feed the GPU: running."),
    sum("waiting_for_cpu_ns", "ns", "The same, waiting for a CPU."),
    sum("blocked_ns", "ns", "The same, blocked."),
    sum("waited_ns", "ns", "How long it waited for operations of several GPUs."),
    sum("held_up_ns", "ns", "Time of GPUs of other ranks that waited for this one while it was late."),
];

/// The sums of a worker, as [`SUMS`] has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums(pub [u64; SUMS.len()]);

impl Sums {
    /// What a digest adds. The worker told `before_ns` the last time, by the same clock.
    pub fn of(digest: &Digest, before: Option<&Digest>, gpus_held_up: f64) -> Self {
        let since_ns = before.map_or(SECOND_NS, |before| digest.at_ns.saturating_sub(before.at_ns));
        let told_ns = since_ns.min(LONGEST_NS);
        let share = |share: f64| (share * told_ns as f64) as u64;
        let [running, waiting_for_cpu, blocked @ ..] = digest.thread_time;
        // Of the communicators that it waits in, one after the other or at once, the one with the longest waits.
        let waited = digest.parts.iter().filter_map(|part| {
            let is_same = |one: &&crate::Part| (one.communicator, one.rank) == (part.communicator, part.rank);
            let earlier = before?.parts.iter().find(is_same)?;
            Some(part.waited_ns.saturating_sub(earlier.waited_ns))
        });
        let steps = u64::from(digest.steps);
        Self([
            told_ns,
            steps,
            steps.saturating_mul(digest.step_ns.unwrap_or(0)),
            share(digest.gpu_idle),
            share(digest.gpu_busy),
            share(running),
            share(waiting_for_cpu),
            share(blocked.iter().sum::<f64>().min(1.0)),
            waited.max().unwrap_or(0).min(told_ns),
            share(gpus_held_up),
        ])
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// Which window a time lies in: when that begins.
pub fn window_of(at_ns: u64) -> u64 {
    at_ns / WINDOW_NS * WINDOW_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    const MS: u64 = 1_000_000;

    fn digest(at_ms: u64, waited_ms: u64) -> Digest {
        let part = |communicator, waited_ns| {
            let (rank, ranks, operations, done_ns) = (0, 2, 1, 0);
            Part { communicator, rank, ranks, operations, waited_ns, done_ns }
        };
        let mut one =
            Digest { at_ns: at_ms * MS, steps: 20, step_ns: Some(45 * MS), gpu_idle: 0.25, ..Digest::default() };
        (one.gpu_busy, one.thread_time[0], one.thread_time[2], one.thread_time[4]) = (0.5, 0.5, 0.25, 0.125);
        one.parts = vec![part(1, waited_ms * MS), part(2, waited_ms * MS / 2)];
        one
    }

    fn in_ms(sums: Sums) -> Vec<(&'static str, u64)> {
        let all = SUMS.iter().zip(sums.0).filter(|(_, value)| *value > 0);
        all.map(|(sum, value)| (sum.name, if sum.unit == "ns" { value / MS } else { value })).collect()
    }

    #[test]
    fn shares_become_times_of_the_second_that_was_told() {
        let sums = Sums::of(&digest(3_000, 700), Some(&digest(2_000, 400)), 1.5);
        let expected = [
            ("told_ns", 1_000),
            ("steps", 20),
            ("steps_ns", 900),
            ("gpu_idle_ns", 250),
            ("gpu_busy_ns", 500),
            ("running_ns", 500),
            ("blocked_ns", 375),
            ("waited_ns", 300),
            ("held_up_ns", 1_500),
        ];
        assert_eq!(in_ms(sums), expected);
    }

    #[test]
    fn what_was_not_told_is_not_made_up() {
        let first = Sums::of(&digest(3_000, 700), None, 0.0);
        assert_eq!((first.0[0], in_ms(first).iter().any(|(name, _)| *name == "waited_ns")), (1_000 * MS, false));
        let after_a_gap = Sums::of(&digest(600_000, 700), Some(&digest(2_000, 0)), 0.0);
        assert_eq!(in_ms(after_a_gap)[0], ("told_ns", 2_000));
        // The clock was set back, and a program began anew.
        let back = Sums::of(&digest(1_000, 5), Some(&digest(2_000, 400)), 0.0);
        assert_eq!(in_ms(back)[0], ("steps", 20));
    }

    #[test]
    fn sums_add_up() {
        let mut one = Sums::of(&digest(3_000, 700), None, 0.0);
        one.add(&one.clone());
        assert_eq!(in_ms(one)[1..3], [("steps", 40), ("steps_ns", 1_800)]);
        assert_eq!(window_of(3 * WINDOW_NS + 1), 3 * WINDOW_NS);
    }
}
