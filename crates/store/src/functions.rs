//! SQL functions for the histograms and estimates in `call_stats`.
//!
//! A percentile of one row is `percentile_ns(histogram, 0.99)`. For many rows, their histograms are merged first:
//! `percentile_ns(merge_histograms(histogram, fraction), 0.99)`.

use std::collections::BTreeMap;

use gpuwhy_model::Histogram;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

/// `percentile_ns(histogram, share)`, the aggregates `merge_histograms(histogram [, fraction])` and
/// `histogram_of(duration_ns)`, and `sqrt(number)`, which SQLite has only in some builds.
pub(crate) fn add_to(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("sqrt", 1, flags, sqrt)?;
    connection.create_scalar_function("percentile_ns", 2, flags, percentile_ns)?;
    connection.create_aggregate_function("merge_histograms", 1, flags, MergeHistograms)?;
    connection.create_aggregate_function("merge_histograms", 2, flags, MergeHistograms)?;
    connection.create_aggregate_function("histogram_of", 1, flags, HistogramOf)
}

/// Like SQLite's own: nothing for what is no number or has no root.
fn sqrt(context: &Context<'_>) -> Result<Option<f64>> {
    let root = match context.get_raw(0) {
        ValueRef::Integer(number) => (number as f64).sqrt(),
        ValueRef::Real(number) => number.sqrt(),
        _ => return Ok(None),
    };
    Ok((!root.is_nan()).then_some(root))
}

fn percentile_ns(context: &Context<'_>) -> Result<Option<i64>> {
    let share: f64 = context.get(1)?;
    if !(0.0..=1.0).contains(&share) {
        return Err(wrong("percentile_ns wants a share between 0 and 1, e.g. 0.99".into()));
    }
    let quantile = argument(context)?.and_then(|histogram| histogram.quantile_ns(share));
    Ok(quantile.map(u64::cast_signed))
}

struct MergeHistograms;

impl Aggregate<WeightedHistogram, Option<String>> for MergeHistograms {
    fn init(&self, _: &mut Context<'_>) -> Result<WeightedHistogram> {
        Ok(WeightedHistogram::default())
    }

    fn step(&self, context: &mut Context<'_>, merged: &mut WeightedHistogram) -> Result<()> {
        if let Some(histogram) = argument(context)? {
            merged.add(&histogram, fraction(context)?);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, merged: Option<WeightedHistogram>) -> Result<Option<String>> {
        Ok(merged.map(|merged| merged.rounded().to_json()))
    }
}

struct HistogramOf;

impl Aggregate<Histogram, Option<String>> for HistogramOf {
    fn init(&self, _: &mut Context<'_>) -> Result<Histogram> {
        Ok(Histogram::default())
    }

    fn step(&self, context: &mut Context<'_>, histogram: &mut Histogram) -> Result<()> {
        if let Some(ns) = context.get::<Option<i64>>(0)? {
            histogram.add(Histogram::index(u64::try_from(ns).unwrap_or(0)), 1);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, histogram: Option<Histogram>) -> Result<Option<String>> {
        Ok(histogram.map(|histogram| histogram.to_json()))
    }
}

/// Parts of a call by bucket. Whole parts add up to the same sum in any order, and fine ones keep the rounding of
/// thousands of rows from adding up.
#[derive(Default)]
struct WeightedHistogram(BTreeMap<u8, u128>);

impl WeightedHistogram {
    const PARTS: u128 = 1 << 20;

    /// Adds calls of which a share `fraction` was seen.
    fn add(&mut self, histogram: &Histogram, fraction: f64) {
        for &(index, count) in histogram.buckets() {
            let parts = match fraction {
                1.0 => u128::from(count) * Self::PARTS,
                _ => (count as f64 / fraction * Self::PARTS as f64).round() as u128,
            };
            let sum = self.0.entry(index).or_default();
            *sum = sum.saturating_add(parts);
        }
    }

    fn rounded(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (&index, &parts) in &self.0 {
            let calls = parts.saturating_add(Self::PARTS / 2) / Self::PARTS;
            histogram.add(index, u64::try_from(calls).unwrap_or(u64::MAX));
        }
        histogram
    }
}

/// The second argument, where there is one. A row that does not know its fraction counts for what was seen.
fn fraction(context: &Context<'_>) -> Result<f64> {
    if context.len() < 2 {
        return Ok(1.0);
    }
    match context.get::<Option<f64>>(1)? {
        None | Some(0.0) => Ok(1.0),
        Some(fraction) if (0.0..=1.0).contains(&fraction) => Ok(fraction),
        Some(_) => Err(wrong("merge_histograms wants a fraction between 0 and 1".into())),
    }
}

fn argument(context: &Context<'_>) -> Result<Option<Histogram>> {
    match context.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Text(text) => {
            let parsed = Histogram::from_json(&String::from_utf8_lossy(text));
            parsed.map(Some).map_err(|error| wrong(format!("not a histogram: {error}")))
        }
        _ => Err(wrong("not a histogram: it is a JSON text such as [[1024,3]]".into())),
    }
}

fn wrong(message: String) -> Error {
    Error::UserFunctionError(message.into())
}
