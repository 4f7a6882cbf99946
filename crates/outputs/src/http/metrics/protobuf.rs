//! Metrics as messages of `io.prometheus.client`, one after the other, each with its length before it. Durations are there twice:
//! in classic buckets and as a native histogram, of which the scraper takes what it knows.

mod messages;
mod native;

use gpuwhy_metrics::{Durations, Exemplar, FAMILIES, Family, Kind, Registry, Series};
use prost::Message;

use messages::{
    COUNTER, ClassicBucket, Counter, ExemplarMessage, GAUGE, Gauge, HISTOGRAM, Histogram, LabelPair, Metric,
    MetricFamily, Timestamp,
};

pub fn write(registry: &mut Registry) -> Vec<u8> {
    registry.count();
    FAMILIES
        .iter()
        .filter_map(|family| family_of(family, registry))
        .flat_map(|one| one.encode_length_delimited_to_vec())
        .collect()
}

/// Nothing of a family without series.
fn family_of(family: &'static Family, registry: &Registry) -> Option<MetricFamily> {
    let metric: Vec<Metric> =
        registry.series_of(family).map(|(labels, series)| metric(family, labels, series)).collect();
    let kind = match family.kind {
        Kind::Counter => COUNTER,
        Kind::Gauge => GAUGE,
        Kind::Histogram => HISTOGRAM,
    };
    let (name, help) = (Some(family.name.to_owned()), Some(family.help.to_owned()));
    (!metric.is_empty()).then_some(MetricFamily { name, help, r#type: Some(kind), metric })
}

fn metric(family: &Family, labels: &[Box<str>], series: &Series) -> Metric {
    let label = pairs(family.labels.iter().copied().zip(labels.iter().map(|value| &**value)));
    let metric = Metric { label, ..Metric::default() };
    match (family.kind, series) {
        (Kind::Counter, &Series::Number(value)) => Metric { counter: Some(Counter { value: Some(value) }), ..metric },
        (_, &Series::Number(value)) => Metric { gauge: Some(Gauge { value: Some(value) }), ..metric },
        (_, Series::Durations(durations)) => Metric { histogram: Some(histogram(durations)), ..metric },
    }
}

fn histogram(durations: &Durations) -> Histogram {
    let mut sum = 0;
    let buckets = durations.buckets().map(|bucket| {
        sum += bucket.count;
        ClassicBucket {
            cumulative_count: Some(sum),
            upper_bound: Some(bucket.bound.unwrap_or(f64::INFINITY)),
            exemplar: bucket.exemplar.map(exemplar),
        }
    });
    let bucket: Vec<ClassicBucket> = buckets.collect();
    let mut exemplars: Vec<&Exemplar> = durations.buckets().filter_map(|bucket| bucket.exemplar).collect();
    exemplars.sort_by_key(|exemplar| exemplar.at_ns);
    Histogram {
        sample_count: Some(durations.histogram.count()),
        sample_sum: Some(durations.seconds),
        bucket,
        exemplars: exemplars.into_iter().map(exemplar).collect(),
        ..native::buckets(&durations.histogram)
    }
}

fn exemplar(exemplar: &Exemplar) -> ExemplarMessage {
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = i64::try_from(exemplar.at_ns / SECOND_NS).unwrap_or(i64::MAX);
    let nanos = (exemplar.at_ns % SECOND_NS) as i32;
    ExemplarMessage {
        label: pairs(exemplar.labels()),
        value: Some(exemplar.seconds()),
        timestamp: Some(Timestamp { seconds, nanos }),
    }
}

fn pairs<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<LabelPair> {
    labels.map(|(name, value)| LabelPair { name: Some(name.to_owned()), value: Some(value.to_owned()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_metrics::families::{CALL_SECONDS, CALLS, PROBES};

    fn read(mut bytes: &[u8]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        families
    }

    fn family(families: &[MetricFamily], name: &str) -> MetricFamily {
        families.iter().find(|family| family.name.as_deref() == Some(name)).unwrap().clone()
    }

    #[test]
    fn numbers_come_with_their_names_labels_and_kinds() {
        let mut registry = Registry::default();
        registry.add(&CALLS, &["7", "py\"thon", "cuLaunchKernel"], 2.0);
        registry.set(&PROBES, &[], 0.0);
        let families = read(&write(&mut registry));
        let calls = family(&families, "gpuwhy_calls_total");
        assert_eq!((calls.r#type, calls.metric.len()), (Some(COUNTER), 1));
        assert_eq!(calls.metric[0].counter, Some(Counter { value: Some(2.0) }));
        let labels = calls.metric[0].label.iter().map(|pair| (pair.name.as_deref(), pair.value.as_deref()));
        let wanted = [("pid", "7"), ("comm", "py\"thon"), ("function", "cuLaunchKernel")];
        assert!(labels.eq(wanted.map(|(name, value)| (Some(name), Some(value)))));
        let probes = family(&families, "gpuwhy_tracer_probes");
        assert_eq!((probes.r#type, &probes.metric[0].gauge), (Some(GAUGE), &Some(Gauge { value: Some(0.0) })));
        assert!(families.iter().all(|family| !family.metric.is_empty()));
    }

    #[test]
    fn durations_are_there_in_classic_buckets_and_as_a_native_histogram_with_the_same_sum() {
        let mut registry = Registry::default();
        let mut durations = gpuwhy_model::Histogram::default();
        for ns in [100, 5_000, 5_000, 10_000_000_000] {
            durations.add(gpuwhy_model::Histogram::index(ns), 1);
        }
        registry.observe(&CALL_SECONDS, &["cuMemAlloc"], &durations, 10_000_010_100);
        for (ns, at_ns) in [(5_000, 9_000_000_000), (10_000_000_000, 8_500_000_000)] {
            let exemplar = Exemplar::new(vec![("tid", "8".to_owned())], ns, at_ns).unwrap();
            registry.exemplify(&CALL_SECONDS, &["cuMemAlloc"], exemplar);
        }
        let family = family(&read(&write(&mut registry)), "gpuwhy_call_duration_seconds");
        assert_eq!(family.r#type, Some(HISTOGRAM));
        let histogram = family.metric[0].histogram.as_ref().unwrap();
        assert_eq!((histogram.sample_count, histogram.sample_sum), (Some(4), Some(10.0000101)));
        let counts: Vec<u64> = histogram.bucket.iter().map(|bucket| bucket.cumulative_count.unwrap()).collect();
        assert_eq!(counts, [1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!(histogram.bucket.last().unwrap().upper_bound, Some(f64::INFINITY));
        let in_bucket = histogram.bucket[2].exemplar.as_ref().unwrap();
        assert_eq!((in_bucket.value, in_bucket.timestamp), (Some(0.000005), Some(Timestamp { seconds: 9, nanos: 0 })));
        // Whoever takes them for one series wants them in order.
        let times: Vec<_> = histogram.exemplars.iter().map(|one| one.timestamp.unwrap().seconds).collect();
        assert_eq!(times, [8, 9]);
        assert_eq!((histogram.zero_count, histogram.positive_span.len()), (Some(1), 2));
    }
}
