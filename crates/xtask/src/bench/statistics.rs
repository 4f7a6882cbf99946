//! The middle of a few noisy figures, and how sure one can be of it.

use serde_json::{Value, json};

/// What an interval should hold the true median with, where there are enough figures.
const CONFIDENCE: f64 = 0.95;

/// The middle value; between the two middle ones of an even number.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The median with the interval that holds the true one: from one of the sorted figures to another. This assumes
/// nothing about how they are spread. A few figures reach only a lower confidence, with all of them in the interval.
pub fn summary(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let outer = (1..count.div_ceil(2)).take_while(|&outer| confidence(count, outer) >= CONFIDENCE).last().unwrap_or(0);
    json!({
        "low": values.get(outer),
        "high": values.get(count.wrapping_sub(1 + outer)),
        "confidence": confidence(count, outer),
        "median": median(values),
    })
}

/// How likely the true median lies inside, when this many figures are left out at each end: fewer than so many of
/// `count` throws of a coin show heads, or fewer show tails.
fn confidence(count: usize, outer: usize) -> f64 {
    let mut exactly = 0.5_f64.powi(count as i32);
    let mut at_most = exactly;
    for heads in 1..=outer {
        exactly *= (count + 1 - heads) as f64 / heads as f64;
        at_most += exactly;
    }
    1.0 - 2.0 * at_most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0]), 3.0);
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn few_figures_are_all_in_the_interval_and_say_what_it_is_worth() {
        let summary = summary(vec![3.0, 1.0, 2.0]);
        assert_eq!(
            (&summary["low"], &summary["high"], &summary["confidence"]),
            (&json!(1.0), &json!(3.0), &json!(0.75))
        );
    }

    #[test]
    fn many_figures_leave_the_outer_ones_out() {
        // The textbook's table: of 10 the 2nd and the 9th, with 97.9 %.
        let summary = summary((1..=10).map(f64::from).collect());
        assert_eq!((&summary["low"], &summary["high"], &summary["median"]), (&json!(2.0), &json!(9.0), &json!(5.5)));
        assert!((summary["confidence"].as_f64().unwrap_or(0.0) - 0.9785).abs() < 1e-4);
    }
}
