//! The numbers that others scrape, as OpenTelemetry has them.

use gpuwhy_metrics::{BOUNDS_NS, FAMILIES, Family, Kind, Registry, Series};

use super::messages::{
    CUMULATIVE, Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, MetricsRequest, NumberPoint, ResourceMetrics,
    ScopeMetrics, Sum, attribute,
};
use super::{Batch, Source};

/// Labels that have a name in OpenTelemetry's conventions. Others are called as they are.
const ATTRIBUTES: &[(&str, &str)] =
    &[("pid", "process.pid"), ("comm", "process.executable.name"), ("function", "code.function.name")];

/// What names of numbers end in, and the unit that this stands for.
const UNITS: &[(&str, &str)] = &[("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")];

/// All there are, at this time.
pub fn batch(source: &Source, registry: &mut Registry, at_ns: u64) -> Batch {
    registry.count();
    let metrics: Vec<Metric> = FAMILIES.iter().filter_map(|family| metric(source, family, registry, at_ns)).collect();
    let points = metrics.iter().map(points).sum::<usize>() as u64;
    let scope_metrics = vec![ScopeMetrics { scope: Some(source.scope()), metrics }];
    let resource_metrics = vec![ResourceMetrics { resource: Some(source.resource()), scope_metrics }];
    Batch::new("metrics", points, &MetricsRequest { resource_metrics })
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        None => 0,
    }
}

fn metric(source: &Source, family: &'static Family, registry: &Registry, at_ns: u64) -> Option<Metric> {
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
                numbers.push(NumberPoint { start_time_unix_nano, time_unix_nano, as_double, attributes });
            }
            Series::Durations { counts, seconds } => durations.push(HistogramPoint {
                start_time_unix_nano,
                time_unix_nano,
                count: counts.iter().sum(),
                sum: Some(*seconds),
                bucket_counts: counts.to_vec(),
                explicit_bounds: BOUNDS_NS.iter().map(|&ns| ns as f64 / 1e9).collect(),
                attributes,
            }),
        }
    }
    if numbers.is_empty() && durations.is_empty() {
        return None;
    }
    let aggregation_temporality = CUMULATIVE;
    let data = match family.kind {
        Kind::Counter => Data::Sum(Sum { data_points: numbers, aggregation_temporality, is_monotonic: true }),
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers }),
        Kind::Histogram => Data::Histogram(Histogram { data_points: durations, aggregation_temporality }),
    };
    let (name, description, unit) = (name.to_owned(), family.help.to_owned(), unit.to_owned());
    Some(Metric { name, description, unit, data: Some(data) })
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
