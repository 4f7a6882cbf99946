//! Series of all families, never more than the budget allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuwhy_model::Histogram;

use crate::durations::{BUCKETS, Durations, Exemplar};
use crate::families::{FAMILIES, Family, Kind, OVERFLOWED, SERIES, SERIES_BUDGET};

/// The most lines that are written for scrapers, headers aside.
pub const MOST_SERIES: usize = 10_000;

/// The value of each label of the series that has all there was no room for.
pub const OVERFLOW: &str = "overflow";

/// A histogram is written as its buckets, a sum and a count.
const LINES_OF_A_HISTOGRAM: usize = BUCKETS + 2;

/// What a series has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Series {
    Number(f64),
    Durations(Box<Durations>),
}

impl Series {
    fn lines(&self) -> usize {
        match self {
            Self::Number(_) => 1,
            Self::Durations(_) => LINES_OF_A_HISTOGRAM,
        }
    }
}

type Labels = Box<[Box<str>]>;

#[derive(Debug)]
pub struct Registry {
    families: BTreeMap<&'static str, BTreeMap<Labels, Series>>,
    lines: usize,
    /// So many lines are for series with labels of their own.
    room: usize,
}

/// One that a sink fills and others write out.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<Mutex<Registry>>);

impl Shared {
    /// Numbers are whole also when somebody panicked beside them.
    pub fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::with_budget(MOST_SERIES)
    }
}

impl Registry {
    /// One that keeps so many series.
    pub fn with_budget(most: usize) -> Self {
        let mut registry = Self { families: BTreeMap::new(), lines: 0, room: most.saturating_sub(reserved()) };
        registry.set(&SERIES_BUDGET, &[], most as f64);
        registry.add(&OVERFLOWED, &[], 0.0);
        registry.set(&SERIES, &[], 0.0);
        registry
    }

    /// Adds to a counter.
    pub fn add(&mut self, family: &'static Family, labels: &[&str], amount: f64) {
        if let Series::Number(number) = self.series(family, labels, || Series::Number(0.0)) {
            *number += amount;
        }
    }

    /// Sets a gauge, or a counter that somebody else keeps.
    pub fn set(&mut self, family: &'static Family, labels: &[&str], value: f64) {
        if let Series::Number(number) = self.series(family, labels, || Series::Number(0.0)) {
            *number = value;
        }
    }

    /// Adds durations that took so long together.
    pub fn observe(&mut self, family: &'static Family, labels: &[&str], durations: &Histogram, sum_ns: u64) {
        if let Series::Durations(all) = self.series(family, labels, no_durations) {
            all.add(durations, sum_ns);
        }
    }

    /// Tells of one of the durations that were added, or will be.
    pub fn exemplify(&mut self, family: &'static Family, labels: &[&str], exemplar: Exemplar) {
        if let Series::Durations(all) = self.series(family, labels, no_durations) {
            all.exemplify(exemplar);
        }
    }

    /// Forgets the series of a family whose labels are like this.
    pub fn forget(&mut self, family: &'static Family, is_gone: impl Fn(&[Box<str>]) -> bool) {
        let Some(all) = self.families.get_mut(family.name) else { return };
        let lines = &mut self.lines;
        all.retain(|labels, series| {
            let is_kept = !is_gone(labels);
            *lines -= if is_kept { 0 } else { series.lines() };
            is_kept
        });
    }

    /// Says how much there is.
    pub fn count(&mut self) {
        self.set(&SERIES, &[], self.lines as f64);
    }

    /// All of a family, each with the values of its labels.
    pub fn series_of(&self, family: &'static Family) -> impl Iterator<Item = (&[Box<str>], &Series)> {
        self.families.get(family.name).into_iter().flatten().map(|(labels, series)| (&**labels, series))
    }

    fn series(&mut self, family: &'static Family, labels: &[&str], new: impl Fn() -> Series) -> &mut Series {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let mut key = own(labels);
        let lines = new().lines();
        let is_known = self.families.get(family.name).is_some_and(|all| all.contains_key(&key));
        if !is_known && !labels.is_empty() && self.lines + lines > self.room {
            key = own(&vec![OVERFLOW; labels.len()]);
            self.add(&OVERFLOWED, &[], 1.0);
        }
        let all_lines = &mut self.lines;
        self.families.entry(family.name).or_default().entry(key).or_insert_with(|| {
            *all_lines += lines;
            new()
        })
    }
}

fn no_durations() -> Series {
    Series::Durations(Box::default())
}

fn own(labels: &[&str]) -> Labels {
    labels.iter().map(|&label| label.into()).collect()
}

/// What is kept free: each family may have one series for all that there was no room for, or one without labels.
fn reserved() -> usize {
    let is_histogram = |family: &&&Family| family.kind == Kind::Histogram;
    FAMILIES.len() + FAMILIES.iter().filter(is_histogram).count() * (LINES_OF_A_HISTOGRAM - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::families::{CALL_SECONDS, CALLS, FINDING};

    fn written(registry: &mut Registry) -> String {
        Format::Classic.write(registry)
    }

    fn lines(text: &str) -> usize {
        text.lines().filter(|line| !line.starts_with('#')).count()
    }

    #[test]
    fn what_has_no_room_is_summed_up_and_told_of() {
        let mut registry = Registry::with_budget(100);
        let mut durations = Histogram::default();
        durations.add(Histogram::index(5_000), 2);
        for pid in 0..10_000 {
            let pid = pid.to_string();
            registry.add(&CALLS, &[&pid, "python", "cuLaunchKernel"], 3.0);
            registry.set(&FINDING, &["lock-wait", "high", &pid, "python"], 0.5);
            registry.observe(&CALL_SECONDS, &[&pid], &durations, 10_000);
        }
        let text = written(&mut registry);
        assert!(lines(&text) <= 100, "{}", lines(&text));
        let calls: f64 = text
            .lines()
            .filter(|line| line.starts_with("gpuwhy_calls_total{"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        assert_eq!(calls, 30_000.0);
        assert!(text.contains(r#"gpuwhy_calls_total{pid="overflow",comm="overflow",function="overflow"}"#), "{text}");
        assert!(!text.contains("gpuwhy_metrics_overflowed_total 0\n"), "{text}");
        assert!(text.contains("gpuwhy_metrics_series_budget 100\n"), "{text}");
    }

    #[test]
    fn what_is_forgotten_makes_room() {
        let mut registry = Registry::with_budget(100);
        for round in 0..50 {
            for pid in 0..20 {
                let pid = format!("{round}-{pid}");
                registry.add(&CALLS, &[&pid, "python", "cuLaunchKernel"], 1.0);
            }
            registry.forget(&CALLS, |labels| labels[0].starts_with(&format!("{round}-")));
        }
        let text = written(&mut registry);
        assert!(text.contains("gpuwhy_metrics_overflowed_total 0\n"), "{text}");
        assert!(!text.contains("gpuwhy_calls_total{"), "{text}");
    }

    #[test]
    fn a_duration_is_in_the_bucket_of_its_length_and_in_all_above() {
        let mut registry = Registry::default();
        let mut durations = Histogram::default();
        for ns in [500, 5_000, 10_000_000_000] {
            durations.add(Histogram::index(ns), 1);
        }
        registry.observe(&CALL_SECONDS, &["cuMemAlloc"], &durations, 10_000_005_500);
        let text = written(&mut registry);
        for line in [
            r#"gpuwhy_call_duration_seconds_bucket{function="cuMemAlloc",le="0.000001024"} 1"#,
            r#"gpuwhy_call_duration_seconds_bucket{function="cuMemAlloc",le="0.000004096"} 1"#,
            r#"gpuwhy_call_duration_seconds_bucket{function="cuMemAlloc",le="0.000016384"} 2"#,
            r#"gpuwhy_call_duration_seconds_bucket{function="cuMemAlloc",le="4.294967296"} 2"#,
            r#"gpuwhy_call_duration_seconds_bucket{function="cuMemAlloc",le="+Inf"} 3"#,
            r#"gpuwhy_call_duration_seconds_sum{function="cuMemAlloc"} 10.0000055"#,
            r#"gpuwhy_call_duration_seconds_count{function="cuMemAlloc"} 3"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
