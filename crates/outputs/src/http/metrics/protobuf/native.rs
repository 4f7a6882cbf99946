//! Our histogram as Prometheus's native one.
//!
//! Ours has eight buckets of equal width for each power of two, in nanoseconds; native ones are powers of two in seconds,
//! which no nanosecond bound ever meets. So no schema has our bounds. In schema 5 there are 32 buckets for each power of two, and no
//! bucket has the middles of two of ours: each of ours becomes the one that its middle is in, and no two are mixed up. Counts and
//! sums stay exact, and a quantile is off by 2.2 % at most from what the trace file says of it, which is within 6.25 % of the truth.

use super::messages::{BucketSpan, Histogram};

/// As many buckets for each power of two as two to the power of this.
const SCHEMA: i32 = 5;

/// Our first bucket has what takes no time that can be measured.
const ZERO: u8 = 0;

/// The buckets; what else there is to a histogram is left out.
pub fn buckets(ours: &gpuwhy_model::Histogram) -> Histogram {
    let (mut positive_span, mut positive_delta) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for &(index, count) in ours.buckets().iter().filter(|(index, _)| *index != ZERO) {
        let at = native_index(index);
        match positive_span.last_mut().filter(|_| at == next) {
            Some(span) => span.length = span.length.map(|length| length + 1),
            None => positive_span.push(BucketSpan { offset: Some(at - next), length: Some(1) }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        positive_delta.push(count - before);
        (next, before) = (at + 1, count);
    }
    let zero_count = ours.buckets().iter().find(|(index, _)| *index == ZERO).map_or(0, |(_, count)| *count);
    Histogram {
        schema: Some(SCHEMA),
        zero_threshold: Some(seconds(gpuwhy_model::Histogram::upper_bound_ns(ZERO))),
        zero_count: Some(zero_count),
        positive_span,
        positive_delta,
        ..Histogram::default()
    }
}

/// The native bucket that the middle of one of ours is in.
fn native_index(ours: u8) -> i32 {
    let middle = seconds(gpuwhy_model::Histogram::middle_ns(ours));
    (middle.log2() * f64::from(1 << SCHEMA)).ceil() as i32
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::Histogram as Ours;

    /// The counts of a native histogram with the indexes of their buckets, as a scraper reads them.
    fn read(histogram: &Histogram) -> Vec<(i32, i64)> {
        let (mut at, mut count, mut counts) = (0, 0, Vec::new());
        let mut deltas = histogram.positive_delta.iter();
        for span in &histogram.positive_span {
            at += span.offset.unwrap();
            for _ in 0..span.length.unwrap() {
                count += deltas.next().unwrap();
                counts.push((at, count));
                at += 1;
            }
        }
        assert_eq!(deltas.next(), None);
        counts
    }

    fn upper_bound(index: i32) -> f64 {
        (f64::from(index) / f64::from(1 << SCHEMA)).exp2()
    }

    #[test]
    fn each_bucket_of_ours_has_a_native_one_of_its_own_that_its_middle_is_in() {
        let mut all = Ours::default();
        (0..=u8::MAX).for_each(|index| all.add(index, 1000 + u64::from(index)));
        let native = buckets(&all);
        assert_eq!(native.zero_count, Some(1000));
        let counts = read(&native);
        assert_eq!(counts.len(), 255);
        assert!(counts.is_sorted_by(|one, other| one.0 < other.0));
        for (index, (at, count)) in (1..=u8::MAX).zip(counts) {
            assert_eq!(count, 1000 + i64::from(index));
            let middle = seconds(Ours::middle_ns(index));
            assert!(upper_bound(at - 1) < middle && middle <= upper_bound(at), "{index}");
            let (width, ours) = (upper_bound(at) - upper_bound(at - 1), seconds(Ours::lower_bound_ns(index)));
            assert!(width <= 0.0225 * ours.max(middle), "{index}");
            assert!(upper_bound(at - 1) > native.zero_threshold.unwrap(), "{index}");
        }
    }

    #[test]
    fn a_histogram_without_calls_has_no_buckets() {
        let native = buckets(&Ours::default());
        assert_eq!((native.zero_count, native.positive_span.len(), native.schema), (Some(0), 0, Some(5)));
    }
}
