//! How metrics are written as text.

use std::fmt::Write;

use crate::durations::{Bucket, Durations};
use crate::families::{FAMILIES, Family};
use crate::registry::{Registry, Series};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text, version 0.0.4.
    Classic,
    OpenMetrics,
}

impl Format {
    pub fn write(self, registry: &mut Registry) -> String {
        registry.count();
        let mut text = String::new();
        for family in FAMILIES {
            self.family(&mut text, family, registry);
        }
        if self == Self::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn family(self, text: &mut String, family: &'static Family, registry: &Registry) {
        let mut all = registry.series_of(family).peekable();
        if all.peek().is_none() {
            return;
        }
        let kind = family.kind.as_str();
        // A counter of OpenMetrics has its name without the ending that its numbers have.
        let name = match self {
            Self::Classic => family.name,
            Self::OpenMetrics => family.name.strip_suffix("_total").unwrap_or(family.name),
        };
        push(text, format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.help));
        for (values, series) in all {
            let labels = labels_of(family.labels.iter().copied().zip(values.iter().map(|value| &**value)));
            match series {
                Series::Number(number) => line(text, family.name, "", &labels, *number),
                Series::Durations(durations) => self.durations(text, family.name, &labels, durations),
            }
        }
    }

    fn durations(self, text: &mut String, name: &str, labels: &str, durations: &Durations) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for Bucket { bound, count, exemplar } in durations.buckets() {
            sum += count;
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
            push(text, format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {sum}"));
            if let Some(exemplar) = exemplar.filter(|_| self == Self::OpenMetrics) {
                let labels = labels_of(exemplar.labels());
                let at_ms = exemplar.at_ns / 1_000_000;
                let (at_s, ms) = (at_ms / 1000, at_ms % 1000);
                push(text, format_args!(" # {{{labels}}} {} {at_s}.{ms:03}", exemplar.seconds()));
            }
            text.push('\n');
        }
        line(text, name, "_sum", labels, durations.seconds);
        line(text, name, "_count", labels, sum as f64);
    }
}

fn line(text: &mut String, name: &str, ending: &str, labels: &str, value: f64) {
    match labels {
        "" => push(text, format_args!("{name}{ending} {value}\n")),
        _ => push(text, format_args!("{name}{ending}{{{labels}}} {value}\n")),
    }
}

fn labels_of<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let all: Vec<String> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    all.join(",")
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Exemplar;
    use crate::families::{CALL_SECONDS, CALLS, Kind, PROBES};
    use gpuwhy_model::Histogram;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.add(&CALLS, &["7", "a \"b\"\\\n", "cuLaunchKernel"], 2.0);
        registry.set(&PROBES, &[], 31.0);
        registry
    }

    #[test]
    fn classic_text_names_a_counter_as_its_numbers_are_named() {
        let text = Format::Classic.write(&mut registry());
        assert!(text.contains("# TYPE gpuwhy_calls_total counter\n"), "{text}");
        assert!(
            text.contains("gpuwhy_calls_total{pid=\"7\",comm=\"a \\\"b\\\"\\\\\\n\",function=\"cuLaunchKernel\"} 2\n")
        );
        assert!(text.contains("\ngpuwhy_tracer_probes 31\n") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn open_metrics_names_it_without_the_ending_and_says_where_it_ends() {
        let text = Format::OpenMetrics.write(&mut registry());
        assert!(text.contains("# TYPE gpuwhy_calls counter\n"), "{text}");
        assert!(text.contains("\ngpuwhy_calls_total{pid=") && text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn a_call_that_a_bucket_counts_is_told_with_it_where_the_format_has_room_for_it() {
        let mut registry = Registry::default();
        let mut durations = Histogram::default();
        durations.add(Histogram::index(5_000), 2);
        registry.observe(&CALL_SECONDS, &["cuMemAlloc"], &durations, 9_000);
        let labels = vec![("pid", "7".to_owned()), ("call", "cuda:1790000000123000000".to_owned())];
        let exemplar = Exemplar::new(labels, 5_000, 1_790_000_000_123_456_789).unwrap();
        registry.exemplify(&CALL_SECONDS, &["cuMemAlloc"], exemplar);
        let bucket = "gpuwhy_call_duration_seconds_bucket{function=\"cuMemAlloc\",le=\"0.000016384\"} 2";
        let call = " # {pid=\"7\",call=\"cuda:1790000000123000000\"} 0.000005 1790000000.123";
        let text = Format::OpenMetrics.write(&mut registry);
        assert!(text.contains(&format!("\n{bucket}{call}\n")), "{text}");
        assert_eq!(text.matches(" # {").count(), 1, "{text}");
        let text = Format::Classic.write(&mut registry);
        assert!(text.contains(&format!("\n{bucket}\n")) && !text.contains(" # {"), "{text}");
    }

    #[test]
    fn names_are_as_prometheus_wants_them() {
        for family in FAMILIES {
            assert!(family.name.starts_with("gpuwhy_"), "{}", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
            assert!(family.help.ends_with('.') && !family.help.starts_with(' '), "{}", family.name);
        }
    }
}
