//! How often functions are called in two parts, how long they take, and whether the difference means anything.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::questions::calls::CallRow;

/// The functions of one part.
pub struct Side {
    pub span_ns: u64,
    pub rows: Vec<CallRow>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ComparedFunction {
    pub op: String,
    pub layer: String,
    pub first: Rates,
    pub second: Rates,
    /// The second's rate by the first's; absent where one of them has no calls, like all ratios.
    pub rate_ratio: Option<f64>,
    pub mean_ratio: Option<f64>,
    pub p50_ratio: Option<f64>,
    pub p99_ratio: Option<f64>,
    /// Time in it by the length of the part, of the second less the first. Threads add up, so it may be above 1.
    pub change_share: f64,
    /// Half of the 95 % interval around the change that sampling leaves; 0 where every call was seen.
    pub error_share: f64,
    /// Whether the change is no more than sampling explains.
    pub is_within_error: bool,
}

#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Rates {
    pub calls: u64,
    pub per_second: f64,
    pub mean_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Time in it by the length of the part.
    pub time_share: f64,
}

pub fn compare(first: &Side, second: &Side) -> Vec<ComparedFunction> {
    let mut named: BTreeMap<(String, String), [Option<&CallRow>; 2]> = BTreeMap::new();
    for (at, side) in [first, second].into_iter().enumerate() {
        for row in &side.rows {
            let name = (row.op.clone().unwrap_or_default(), row.layer.clone().unwrap_or_default());
            named.entry(name).or_default()[at] = Some(row);
        }
    }
    let mut functions: Vec<ComparedFunction> =
        named.into_iter().map(|(name, rows)| function(name, rows, [first.span_ns, second.span_ns])).collect();
    functions.sort_by(|one, other| other.change_share.abs().total_cmp(&one.change_share.abs()));
    functions
}

fn function((op, layer): (String, String), rows: [Option<&CallRow>; 2], spans_ns: [u64; 2]) -> ComparedFunction {
    let [one, other] = [0, 1].map(|at| rows[at].map(|row| rates(row, spans_ns[at])).unwrap_or_default());
    let errors = [0, 1].map(|at| rows[at].map_or(0.0, |row| time_error_ns(row) / (spans_ns[at].max(1) as f64)));
    let change_share = other.time_share - one.time_share;
    let error_share = errors[0].hypot(errors[1]);
    let whole = |ns: Option<u64>| ns.map(|ns| ns as f64);
    ComparedFunction {
        op,
        layer,
        rate_ratio: ratio(Some(other.per_second), Some(one.per_second)),
        mean_ratio: ratio(whole(other.mean_ns), whole(one.mean_ns)),
        p50_ratio: ratio(whole(other.p50_ns), whole(one.p50_ns)),
        p99_ratio: ratio(whole(other.p99_ns), whole(one.p99_ns)),
        first: one,
        second: other,
        change_share,
        error_share,
        is_within_error: error_share > 0.0 && change_share.abs() <= error_share,
    }
}

fn rates(row: &CallRow, span_ns: u64) -> Rates {
    let span_ns = span_ns.max(1) as f64;
    Rates {
        calls: row.estimate,
        per_second: row.estimate as f64 * 1e9 / span_ns,
        mean_ns: row.sum_ns.checked_div(row.estimate),
        p50_ns: row.p50_ns,
        p99_ns: row.p99_ns,
        time_share: row.sum_ns as f64 / span_ns,
    }
}

fn ratio(second: Option<f64>, first: Option<f64>) -> Option<f64> {
    let (second, first) = (second?, first?);
    (first > 0.0 && second > 0.0).then(|| second / first)
}

/// How far off the time in a function may be: the number of calls is estimated, and so is how long one takes.
fn time_error_ns(row: &CallRow) -> f64 {
    if row.is_exact() {
        return 0.0;
    }
    let mean_ns = row.sum_ns as f64 / row.estimate.max(1) as f64;
    let unseen = (1.0 - row.fraction).max(0.0);
    let of_mean = 1.96 * spread_ns(row, mean_ns) * (unseen / row.count.max(1) as f64).sqrt();
    (row.error * mean_ns).hypot(of_mean * row.estimate as f64)
}

/// How much durations differ from their mean, from the histogram.
fn spread_ns(row: &CallRow, mean_ns: f64) -> f64 {
    let calls: f64 = row.histogram.iter().map(|(_, calls)| *calls as f64).sum();
    let square = |(upper_ns, calls): &(u64, u64)| (*upper_ns as f64 - mean_ns).powi(2) * *calls as f64;
    let squares: f64 = row.histogram.iter().map(square).sum();
    if calls > 0.0 { (squares / calls).sqrt() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: u64, estimate: u64, error: f64, mean_ns: u64) -> CallRow {
        CallRow {
            op: Some("cuLaunchKernel".into()),
            layer: Some("driver".into()),
            count,
            estimate,
            error,
            fraction: count as f64 / estimate as f64,
            sum_ns: estimate * mean_ns,
            histogram: vec![(mean_ns, estimate)],
            ..CallRow::default()
        }
    }

    fn one(first: CallRow, second: CallRow) -> ComparedFunction {
        let side = |row| Side { span_ns: 1_000_000_000, rows: vec![row] };
        compare(&side(first), &side(second)).remove(0)
    }

    #[test]
    fn a_change_that_sampling_explains_is_said_to_be_one() {
        let same = one(row(100, 1000, 80.0, 1000), row(100, 1050, 80.0, 1000));
        assert!(same.is_within_error && same.error_share > 0.0, "{same:?}");
        let grown = one(row(100, 1000, 80.0, 1000), row(100, 2000, 80.0, 1000));
        assert!(!grown.is_within_error, "{grown:?}");
        assert_eq!(grown.rate_ratio, Some(2.0));
    }

    #[test]
    fn where_every_call_was_seen_any_change_is_real() {
        let grown = one(row(1000, 1000, 0.0, 1000), row(1001, 1001, 0.0, 1000));
        assert!(!grown.is_within_error && grown.error_share == 0.0, "{grown:?}");
    }

    #[test]
    fn a_function_that_only_one_part_has_has_no_ratio() {
        let side = |rows| Side { span_ns: 1_000_000_000, rows };
        let functions = compare(&side(vec![]), &side(vec![row(10, 10, 0.0, 500)]));
        assert_eq!((functions[0].rate_ratio, functions[0].first.calls), (None, 0));
        assert!(functions[0].change_share > 0.0);
    }
}
