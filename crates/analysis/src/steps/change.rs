//! When steps began to take longer or shorter: one change, between two stretches of steps.

use gpuwhy_model::StepChange;

use super::Gap;

/// Steps there must be on either side.
const LEAST_STEPS: usize = 10;

/// A change by less is not one.
const LEAST_FACTOR: f64 = 1.25;

/// A single long step counts for no more than so many usual ones.
const MOST_OF_ONE_STEP: u64 = 4;

pub(super) fn find(gaps: &[Gap]) -> Option<StepChange> {
    if gaps.len() < 2 * LEAST_STEPS {
        return None;
    }
    let median = quantile(gaps, 0.5);
    let cut: Vec<f64> = gaps.iter().map(|gap| gap.ns.min(median.saturating_mul(MOST_OF_ONE_STEP)) as f64).collect();
    let at = best_split(&cut)?;
    let (before, after) = gaps.split_at(at);
    let (old, new) = (quantile(before, 0.5), quantile(after, 0.5));
    let factor = new as f64 / old.max(1) as f64;
    let is_clear = if factor >= LEAST_FACTOR {
        new > quantile(before, 0.75)
    } else {
        factor <= 1.0 / LEAST_FACTOR && old > quantile(after, 0.75)
    };
    is_clear.then_some(StepChange { at_ns: gaps[at].at_ns, factor })
}

/// Where the means of the two sides differ most, for how many steps they are of.
fn best_split(lengths: &[f64]) -> Option<usize> {
    let all: f64 = lengths.iter().sum();
    let count = lengths.len() as f64;
    let mut before = 0.0;
    let mut best = None;
    let mut most = 0.0;
    for (at, length) in lengths.iter().enumerate() {
        let (left, right) = (at as f64, count - at as f64);
        if at >= LEAST_STEPS && lengths.len() - at >= LEAST_STEPS {
            let difference = (before / left - (all - before) / right).abs() * (left * right).sqrt();
            if difference > most {
                (most, best) = (difference, Some(at));
            }
        }
        before += length;
    }
    best
}

fn quantile(gaps: &[Gap], share: f64) -> u64 {
    let mut lengths: Vec<u64> = gaps.iter().map(|gap| gap.ns).collect();
    lengths.sort_unstable();
    let at = (share * lengths.len() as f64) as usize;
    lengths.get(at.min(lengths.len().saturating_sub(1))).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(lengths: impl IntoIterator<Item = u64>) -> Vec<Gap> {
        let mut at_ns = 0;
        let gap = |ns| {
            at_ns += ns;
            Gap { at_ns: at_ns - ns, ns }
        };
        lengths.into_iter().map(gap).collect()
    }

    #[test]
    fn steps_that_take_longer_from_some_moment_on_are_a_change_at_that_moment() {
        let change = find(&gaps((0..100).map(|step| if step < 60 { 1000 } else { 1500 }))).unwrap();
        assert_eq!((change.at_ns, change.factor), (60_000, 1.5));
    }

    #[test]
    fn a_single_long_step_is_no_change_and_neither_is_noise() {
        assert_eq!(find(&gaps((0..100).map(|step| if step == 50 { 90_000 } else { 1000 }))), None);
        assert_eq!(find(&gaps((0..100).map(|step| 1000 + (step * 7919) % 400))), None);
        assert_eq!(find(&gaps([1000; 19])), None);
    }
}
