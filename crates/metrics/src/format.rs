//! How metrics are written.

use std::fmt::Write;

use crate::families::{FAMILIES, Family};
use crate::registry::{BOUNDS_NS, Registry, Series};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text, version 0.0.4.
    Classic,
    OpenMetrics,
}

impl Format {
    /// What somebody gets who accepts this.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Classic }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

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
            let labels = labels(family.labels, values);
            match series {
                Series::Number(number) => line(text, family.name, "", &labels, *number),
                Series::Durations { counts, seconds } => {
                    let mut sum = 0;
                    for (at, count) in counts.iter().enumerate() {
                        sum += count;
                        let bound = BOUNDS_NS.get(at).map_or("+Inf".to_owned(), |&ns| (ns as f64 / 1e9).to_string());
                        let comma = if labels.is_empty() { "" } else { "," };
                        line(text, family.name, "_bucket", &format!("{labels}{comma}le=\"{bound}\""), sum as f64);
                    }
                    line(text, family.name, "_sum", &labels, *seconds);
                    line(text, family.name, "_count", &labels, sum as f64);
                }
            }
        }
    }
}

fn line(text: &mut String, name: &str, ending: &str, labels: &str, value: f64) {
    match labels {
        "" => push(text, format_args!("{name}{ending} {value}\n")),
        _ => push(text, format_args!("{name}{ending}{{{labels}}} {value}\n")),
    }
}

fn labels(names: &[&str], values: &[Box<str>]) -> String {
    let values = values.iter().map(|value| escaped(value));
    let all: Vec<String> = names.iter().zip(values).map(|(name, value)| format!("{name}=\"{value}\"")).collect();
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
    use crate::families::{CALLS, Kind, PROBES};

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
    fn names_are_as_prometheus_wants_them() {
        for family in FAMILIES {
            assert!(family.name.starts_with("gpuwhy_"), "{}", family.name);
            assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
            assert!(family.help.ends_with('.') && !family.help.starts_with(' '), "{}", family.name);
        }
    }
}
