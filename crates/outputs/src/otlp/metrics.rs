//! The numbers that others scrape, as OpenTelemetry has them.

use gpuwhy_metrics::{BOUNDS_NS, FAMILIES, Family, Kind, Registry, Series};

use prost::Message;

use super::messages::{
    CUMULATIVE, Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, MetricsRequest, NumberPoint, ResourceMetrics,
    ScopeMetrics, Sum, attribute,
};
use super::queue::{Batch, METRICS};
use super::source::Source;

/// Labels that have a name in OpenTelemetry's conventions. Others are called as they are.
const ATTRIBUTES: &[(&str, &str)] =
    &[("pid", "process.pid"), ("comm", "process.executable.name"), ("function", "code.function.name")];

/// What names of numbers end in, and the unit that this stands for.
const UNITS: &[(&str, &str)] = &[("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")];

/// Receivers take no message above 4 MB over gRPC, unpacked.
const MOST_BYTES: usize = 2 << 20;
/// A metric with more series comes in parts.
const MOST_POINTS: usize = 1_000;

/// All there are, at this time.
pub fn batches(source: &Source, registry: &mut Registry, at_ns: u64) -> Vec<Batch> {
    registry.count();
    let (mut batches, mut together, mut bytes) = (Vec::new(), Vec::new(), 0);
    for metric in FAMILIES.iter().flat_map(|family| parts(source, family, registry, at_ns)) {
        let more = metric.encoded_len();
        if bytes + more > MOST_BYTES && !together.is_empty() {
            batches.push(batch(source, std::mem::take(&mut together)));
            bytes = 0;
        }
        bytes += more;
        together.push(metric);
    }
    batches.push(batch(source, together));
    batches
}

fn batch(source: &Source, metrics: Vec<Metric>) -> Batch {
    let points = metrics.iter().map(points).sum::<usize>() as u64;
    let scope_metrics = vec![ScopeMetrics { scope: Some(source.scope()), metrics }];
    let resource_metrics = vec![ResourceMetrics { resource: Some(source.resource()), scope_metrics }];
    Batch::new(METRICS, points, &MetricsRequest { resource_metrics })
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        None => 0,
    }
}

fn parts(source: &Source, family: &'static Family, registry: &Registry, at_ns: u64) -> Vec<Metric> {
    // A receiver that speaks Prometheus adds the ending of a counter.
    let name = family.name.strip_suffix("_total").unwrap_or(family.name);
    let unit = UNITS.iter().find(|(ending, _)| name.ends_with(ending)).map_or("", |(_, unit)| unit);
    let (mut numbers, mut durations) = (Vec::new(), Vec::new());
    for (labels, series) in registry.series_of(family) {
        let attributes = attributes(family, labels);
        let (start_time_unix_nano, time_unix_nano) = (source.since_ns, at_ns);
        match series {
            Series::Number(number) => {
                let as_double = Some(*number);
                let as_int = None;
                numbers.push(NumberPoint { start_time_unix_nano, time_unix_nano, as_double, as_int, attributes });
            }
            Series::Durations(all) => durations.push(HistogramPoint {
                start_time_unix_nano,
                time_unix_nano,
                count: all.histogram.count(),
                sum: Some(all.seconds),
                bucket_counts: all.buckets().map(|bucket| bucket.count).collect(),
                explicit_bounds: BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).collect(),
                attributes,
            }),
        }
    }
    let aggregation_temporality = CUMULATIVE;
    let numbers = numbers.chunks(MOST_POINTS).map(<[_]>::to_vec).map(|data_points| match family.kind {
        Kind::Counter => Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true }),
        Kind::Gauge | Kind::Histogram => Data::Gauge(Gauge { data_points }),
    });
    let durations = durations.chunks(MOST_POINTS).map(<[_]>::to_vec);
    let durations = durations.map(|data_points| Data::Histogram(Histogram { data_points, aggregation_temporality }));
    let named = |data| Metric {
        name: name.to_owned(),
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
    };
    numbers.chain(durations).map(named).collect()
}

fn attributes(family: &Family, values: &[Box<str>]) -> Vec<KeyValue> {
    let one = |(label, value): (&&str, &str)| {
        let name = ATTRIBUTES.iter().find(|(known, _)| known == label).map_or(*label, |(_, name)| name);
        match (*label, value.parse::<u32>()) {
            ("pid", Ok(pid)) => attribute(name, pid),
            _ => attribute(name, value),
        }
    };
    family.labels.iter().zip(values.iter().map(|value| &**value)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use gpuwhy_metrics::families;

    use super::*;
    use crate::otlp::OtlpSettings;

    #[test]
    fn many_series_come_in_several_messages_each_of_them_once() {
        let mut registry = Registry::default();
        for pid in 0..9_000 {
            let labels = [pid.to_string(), "python".to_owned(), "a_long_name".repeat(20)];
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            registry.add(&families::CALLS, &labels, 1.0);
        }
        let source = Source::new(&OtlpSettings::new("http://x", |_| String::new()).unwrap());
        let batches = batches(&source, &mut registry, 7);
        let (mut found, mut items) = (Vec::new(), 0);
        for batch in &batches {
            let mut unpacked = Vec::new();
            GzDecoder::new(&batch.body[..]).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked.len() < 3 << 20, "{}", unpacked.len());
            let request = MetricsRequest::decode(&unpacked[..]).unwrap();
            let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
            assert_eq!(batch.items, metrics.iter().map(points).sum::<usize>() as u64);
            items += batch.items;
            for metric in metrics.iter().filter(|metric| metric.name == "gpuwhy_calls") {
                let Some(Data::Sum(sum)) = &metric.data else { panic!("{}", metric.name) };
                found.extend(sum.data_points.iter().map(|point| format!("{:?}", point.attributes)));
            }
        }
        assert!(batches.len() > 1 && items >= 9_000);
        let all = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((found.len(), all), (9_000, 9_000));
    }
}
