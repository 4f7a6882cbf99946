//! SQL functions for the histograms in `call_stats`.

use gpuwhy_model::Histogram;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Result};

use crate::histogram;

/// `percentile_ns(histogram, 0.99)` and the aggregate `merge_histograms(histogram)`.
pub(crate) fn add_to(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("percentile_ns", 2, flags, percentile_ns)?;
    connection.create_aggregate_function("merge_histograms", 1, flags, MergeHistograms)
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

impl Aggregate<Histogram, Option<String>> for MergeHistograms {
    fn init(&self, _: &mut Context<'_>) -> Result<Histogram> {
        Ok(Histogram::default())
    }

    fn step(&self, context: &mut Context<'_>, merged: &mut Histogram) -> Result<()> {
        if let Some(histogram) = argument(context)? {
            merged.merge(&histogram);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, merged: Option<Histogram>) -> Result<Option<String>> {
        Ok(merged.as_ref().map(histogram::to_json))
    }
}

fn argument(context: &Context<'_>) -> Result<Option<Histogram>> {
    match context.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Text(text) => {
            let parsed = histogram::from_json(&String::from_utf8_lossy(text));
            parsed.map(Some).map_err(|error| wrong(format!("not a histogram: {error}")))
        }
        _ => Err(wrong("not a histogram: it is a JSON text such as [[1024,3]]".into())),
    }
}

fn wrong(message: String) -> Error {
    Error::UserFunctionError(message.into())
}
