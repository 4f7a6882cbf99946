//! Durations in log-linear buckets: eight per power of two, so that a percentile is off by at most 6.25 %.
//!
//! The kernel fills the same buckets (`histogram_index` in `calls.bpf.c`); a test holds the two together.

/// Values below 2^7 ns share the first bucket; a probe cannot time anything shorter.
const FIRST_OCTAVE: u32 = 7;
const SUBBUCKETS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Sorted by bucket, no zero counts.
    buckets: Vec<(u8, u64)>,
}

impl Histogram {
    pub const BUCKETS: usize = 256;

    /// The bucket a duration falls into.
    pub fn index(ns: u64) -> u8 {
        let octave = 63 - (ns | 1).leading_zeros();
        if octave < FIRST_OCTAVE {
            return 0;
        }
        let sub = (ns >> (octave - 3)) as usize & (SUBBUCKETS - 1);
        let index = (octave - FIRST_OCTAVE) as usize * SUBBUCKETS + sub + 1;
        index.min(Self::BUCKETS - 1) as u8
    }

    /// The smallest duration in a bucket.
    pub fn lower_bound_ns(index: u8) -> u64 {
        let Some(above_first) = (index as usize).checked_sub(1) else {
            return 0;
        };
        let octave = FIRST_OCTAVE as usize + above_first / SUBBUCKETS;
        let sub = above_first % SUBBUCKETS;
        ((SUBBUCKETS + sub) as u64) << (octave - 3)
    }

    /// The first duration above a bucket; the last bucket has no end.
    pub fn upper_bound_ns(index: u8) -> u64 {
        match index.checked_add(1) {
            Some(next) => Self::lower_bound_ns(next),
            None => u64::MAX,
        }
    }

    /// The middle of a bucket; of the last one, its smallest duration.
    pub fn middle_ns(index: u8) -> u64 {
        let (lower, upper) = (Self::lower_bound_ns(index), Self::upper_bound_ns(index));
        if upper == u64::MAX { lower } else { lower + (upper - lower) / 2 }
    }

    pub fn add(&mut self, index: u8, count: u64) {
        if count == 0 {
            return;
        }
        match self.buckets.binary_search_by_key(&index, |&(i, _)| i) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (index, count)),
        }
    }

    /// As the trace file keeps it, so that any SQLite tool can read it: `[[lower_bound_ns, count], ...]`.
    pub fn to_json(&self) -> String {
        let pair = |&(index, count): &(u8, u64)| format!("[{},{count}]", Self::lower_bound_ns(index));
        let pairs: Vec<String> = self.buckets.iter().map(pair).collect();
        format!("[{}]", pairs.join(","))
    }

    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let pairs: Vec<(u64, u64)> = serde_json::from_str(text)?;
        let mut histogram = Self::default();
        for (lower_bound_ns, count) in pairs {
            histogram.add(Self::index(lower_bound_ns), count);
        }
        Ok(histogram)
    }

    pub fn merge(&mut self, other: &Self) {
        for &(index, count) in &other.buckets {
            self.add(index, count);
        }
    }

    pub fn buckets(&self) -> &[(u8, u64)] {
        &self.buckets
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// The same with half the calls, rounded down.
    pub fn halved(&self) -> Self {
        let halves = self.buckets.iter().map(|&(index, count)| (index, count / 2));
        Self { buckets: halves.filter(|&(_, count)| count > 0).collect() }
    }

    /// The least and the greatest duration it can stand for; zeros when it is empty.
    pub fn bounds_ns(&self) -> (u64, u64) {
        match (self.buckets.first(), self.buckets.last()) {
            (Some(&(first, _)), Some(&(last, _))) => (Self::lower_bound_ns(first), Self::upper_bound_ns(last) - 1),
            _ => (0, 0),
        }
    }

    /// The duration below which a share `quantile` (0 to 1) of the calls lie: the middle of the bucket that holds it.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let rank = (quantile.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for &(index, count) in &self.buckets {
            below = count.saturating_add(below);
            if below >= rank {
                return Some(Self::middle_ns(index));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_duration_lies_between_the_bounds_of_its_bucket(ns in 0..1u64 << 38) {
            let index = Histogram::index(ns);
            prop_assert!(Histogram::lower_bound_ns(index) <= ns);
            prop_assert!(ns < Histogram::upper_bound_ns(index));
        }

        #[test]
        fn a_percentile_of_equal_durations_is_within_a_sixteenth(ns in 200..1u64 << 38, calls in 1..1000u64) {
            let mut histogram = Histogram::default();
            histogram.add(Histogram::index(ns), calls);
            let median = histogram.quantile_ns(0.5).unwrap();
            prop_assert!(median.abs_diff(ns) as f64 <= ns as f64 / 16.0 + 1.0);
        }

        #[test]
        fn a_histogram_survives_the_file(buckets in proptest::collection::vec((any::<u8>(), any::<u64>()), 0..300)) {
            let mut histogram = Histogram::default();
            for (index, count) in buckets {
                histogram.add(index, count);
            }
            prop_assert_eq!(Histogram::from_json(&histogram.to_json()).unwrap(), histogram);
        }

        #[test]
        fn text_that_is_no_histogram_is_an_error(text in ".*") {
            let _ = Histogram::from_json(&text);
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gaps() {
        for index in 0..=254u8 {
            let next = Histogram::upper_bound_ns(index);
            assert_eq!(Histogram::index(next), index + 1);
            assert_eq!(Histogram::index(next - 1), index);
        }
        assert_eq!(Histogram::index(u64::MAX), 255);
    }

    #[test]
    fn an_empty_histogram_has_no_percentile() {
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
    }
}
