//! How often a program comes round, by the calls that are always seen: waits, launches of graphs, operations of several GPUs.
//! A step is the shortest pattern of them that repeats itself.

use std::collections::VecDeque;

const MOST_MARKS: usize = 256;
/// A longer pattern is not recognised.
const LONGEST: usize = 64;
/// So often it has to have come round.
const TIMES: usize = 3;

/// The marks of a thread, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    marks: VecDeque<(u64, u64)>,
    /// Marks since the last time.
    new: usize,
}

impl Rhythm {
    /// A call of a kind, at a time.
    pub fn mark(&mut self, kind: u64, at_ns: u64) {
        if self.marks.len() == MOST_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((kind, at_ns));
        self.new += 1;
    }

    pub fn new_marks(&self) -> usize {
        self.new
    }

    /// How often the pattern came round since the last time, and how long that takes on average.
    pub fn steps(&mut self) -> (u32, Option<u64>) {
        let new = std::mem::take(&mut self.new);
        let Some(length) = (1..=LONGEST).find(|&length| self.repeats(length)) else { return (0, None) };
        let marks = (self.marks.len() - 1) / length * length;
        let last = self.marks.len() - 1;
        let took_ns = self.marks[last].1.saturating_sub(self.marks[last - marks].1);
        ((new / length) as u32, Some(took_ns / (marks / length).max(1) as u64))
    }

    /// Whether the last marks are a pattern of this length, several times over.
    fn repeats(&self, length: usize) -> bool {
        let checked = length * (TIMES - 1);
        let count = self.marks.len();
        count > length * TIMES && (count - checked..count).all(|at| self.marks[at].0 == self.marks[at - length].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn steps(pattern: &[u64], times: u64) -> (u32, Option<u64>) {
        let mut rhythm = Rhythm::default();
        for step in 0..times {
            for (at, &kind) in (0..).zip(pattern) {
                rhythm.mark(kind, step * 40 * MS + at * MS);
            }
        }
        rhythm.steps()
    }

    #[test]
    fn a_step_is_the_shortest_pattern_that_comes_round() {
        assert_eq!(steps(&[7], 20), (20, Some(40 * MS)));
        assert_eq!(steps(&[7, 8, 7, 9], 10), (10, Some(40 * MS)));
        // Buckets of a training: the same function with other sizes.
        let buckets: Vec<u64> = (0..30).chain([99]).collect();
        assert_eq!(steps(&buckets, 6), (6, Some(40 * MS)));
    }

    #[test]
    fn without_a_pattern_there_are_no_steps() {
        assert_eq!(steps(&[7, 8, 9], 2), (0, None));
        let odd: Vec<u64> = (0..200).map(|number: u64| number * number % 97).collect();
        assert_eq!(steps(&odd, 1), (0, None));
        assert_eq!(Rhythm::default().steps(), (0, None));
    }

    #[test]
    fn what_was_counted_is_not_counted_again() {
        let mut rhythm = Rhythm::default();
        (0..10).for_each(|at| rhythm.mark(1, at * MS));
        assert_eq!(rhythm.steps(), (10, Some(MS)));
        (10..14).for_each(|at| rhythm.mark(1, at * MS));
        assert_eq!(rhythm.steps(), (4, Some(MS)));
    }
}
