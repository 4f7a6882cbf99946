//! How long calls took: what a histogram is written from, and single calls as examples.

use gpuwhy_model::Histogram;

/// Upper bounds of the buckets in ns: powers of four from 1 us to 4.3 s.
pub const BOUNDS_NS: [u64; 12] = {
    let mut bounds = [0; 12];
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = 1 << (10 + 2 * at);
        at += 1;
    }
    bounds
};

/// The buckets that have bounds, and the one beyond the last.
pub const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Names and values of an exemplar's labels have no more characters together: OpenMetrics allows no more.
const MOST_CHARACTERS: usize = 128;

/// So long an exemplar stays unless a slower one comes: whoever scrapes has seen it by then.
const KEPT_NS: u64 = 60_000_000_000;

/// In which bucket a duration is.
pub fn bucket_of(ns: u64) -> usize {
    BOUNDS_NS.partition_point(|&bound_ns| bound_ns <= ns)
}

/// All durations of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// As they were counted: much finer than the buckets.
    pub histogram: Histogram,
    pub seconds: f64,
    exemplars: [Option<Exemplar>; BUCKETS],
}

/// A bucket as it is written.
pub struct Bucket<'a> {
    /// In seconds; none for the last one.
    pub bound: Option<f64>,
    /// Calls in it, without those below.
    pub count: u64,
    pub exemplar: Option<&'a Exemplar>,
}

impl Durations {
    pub(crate) fn add(&mut self, durations: &Histogram, sum_ns: u64) {
        self.histogram.merge(durations);
        self.seconds += sum_ns as f64 / 1e9;
    }

    /// The slowest of the last minute stays.
    pub(crate) fn exemplify(&mut self, exemplar: Exemplar) {
        let place = &mut self.exemplars[bucket_of(exemplar.ns)];
        let is_due = |old: &Exemplar| old.ns <= exemplar.ns || old.at_ns.saturating_add(KEPT_NS) <= exemplar.at_ns;
        if place.as_ref().is_none_or(is_due) {
            *place = Some(exemplar);
        }
    }

    /// All of them, the shortest durations first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket<'_>> {
        let mut counts = [0; BUCKETS];
        // A bucket of the histogram lies in one of ours.
        for &(index, count) in self.histogram.buckets() {
            counts[bucket_of(Histogram::lower_bound_ns(index))] += count;
        }
        counts.into_iter().zip(&self.exemplars).enumerate().map(|(at, (count, exemplar))| Bucket {
            bound: BOUNDS_NS.get(at).map(|&ns| ns as f64 / 1e9),
            count,
            // A call is seen a moment before it is counted.
            exemplar: exemplar.as_ref().filter(|_| count > 0),
        })
    }
}

/// A call that a bucket counts, for whoever wants to look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    labels: Vec<(&'static str, String)>,
    pub ns: u64,
    /// When it was over, in Unix time.
    pub at_ns: u64,
}

impl Exemplar {
    /// None where the labels are longer than they may be.
    pub fn new(labels: Vec<(&'static str, String)>, ns: u64, at_ns: u64) -> Option<Self> {
        let characters = labels.iter().map(|(name, value)| name.chars().count() + value.chars().count());
        (characters.sum::<usize>() <= MOST_CHARACTERS).then_some(Self { labels, ns, at_ns })
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(name, value)| (*name, value.as_str()))
    }

    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn exemplar(ns: u64, at_ns: u64) -> Exemplar {
        Exemplar::new(vec![("call", format!("cuda:{at_ns}"))], ns, at_ns).unwrap()
    }

    fn kept(durations: &Durations) -> Vec<Option<(u64, u64)>> {
        durations.buckets().map(|bucket| bucket.exemplar.map(|one| (one.ns, one.at_ns))).collect()
    }

    #[test]
    fn the_slowest_of_the_last_minute_stays_in_its_bucket() {
        let mut durations = Durations::default();
        for ns in [500, 5_000, 1 << 33] {
            durations.histogram.add(Histogram::index(ns), 1);
        }
        durations.exemplify(exemplar(5_000, 10 * SECOND_NS));
        durations.exemplify(exemplar(4_500, 60 * SECOND_NS));
        durations.exemplify(exemplar(1 << 33, 60 * SECOND_NS));
        // Nothing of this length has been counted yet.
        durations.exemplify(exemplar(100_000, 60 * SECOND_NS));
        let mut wanted = vec![None; BUCKETS];
        wanted[2] = Some((5_000, 10 * SECOND_NS));
        wanted[BUCKETS - 1] = Some((1 << 33, 60 * SECOND_NS));
        assert_eq!(kept(&durations), wanted);
        durations.exemplify(exemplar(4_500, 70 * SECOND_NS));
        wanted[2] = Some((4_500, 70 * SECOND_NS));
        durations.exemplify(exemplar(1 << 34, 61 * SECOND_NS));
        wanted[BUCKETS - 1] = Some((1 << 34, 61 * SECOND_NS));
        assert_eq!(kept(&durations), wanted);
    }

    #[test]
    fn labels_of_an_exemplar_are_no_longer_than_open_metrics_allows() {
        let of = |value: String| Exemplar::new(vec![("call", value)], 1, 1);
        assert!(of("ä".repeat(124)).is_some());
        assert!(of("ä".repeat(125)).is_none());
    }

    #[test]
    fn an_exemplar_is_within_the_bounds_of_its_bucket() {
        for ns in [1, 1023, 1024, 1025, (1 << 32) - 1, 1 << 32, u64::MAX] {
            let at = bucket_of(ns);
            assert!(BOUNDS_NS.get(at).is_none_or(|&bound_ns| ns < bound_ns), "{ns}");
            assert!(at == 0 || BOUNDS_NS[at - 1] <= ns, "{ns}");
            assert_eq!(at, bucket_of(Histogram::lower_bound_ns(Histogram::index(ns))), "{ns}");
        }
    }
}
