//! How many calls there were, of a function that is watched only in short windows.
//!
//! A window stands for the cycle that it ends: with n calls in a window of length W, a cycle of length L had about
//! n * L / W calls. Whatever else a window measures scales with the same L / W. How far off that may be is read from how
//! much neighbouring windows differ. Variances of cycles add up, so that over a dozen windows or more the true number
//! lies within `sum(count) ± 1.96 * sqrt(sum(variance))` in at least 95 of 100 cases. The tests hold that to account on
//! calls of many shapes.
//!
//! Nothing here decides when a window is, but it matters: gaps have to be random by half of their length either way, or
//! they fall into step with calls in phases; and a gap may follow what the last dozen windows saw, but not what the last
//! one alone did, or cycles that begin busy are longer than others and the sum is off by a third.

/// From the end of the previous window to the end of this one; the window is the last part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cycle {
    pub length_ns: u64,
    pub window_ns: u64,
    /// Calls in the window.
    pub seen: u64,
    /// How long the probes held the thread up in the window, which is taken out of both lengths already.
    pub held_up_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimated {
    /// Whole calls; what rounding leaves over goes into the next estimate, so that sums stay true.
    pub count: u64,
    pub variance: f64,
}

/// Follows one function of one thread from window to window.
///
/// A stretch that was watched without gaps just before the first window may be given as a cycle that is all window: its
/// own estimate is exact, and the first real window gets a neighbour to be compared with.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    last: Option<Watched>,
    windows: u32,
    /// Windows without a call since the last one that had some.
    empty_windows: u32,
    /// Sum of the squared differences between the rates of neighbouring windows.
    squares: f64,
    trend: OneSided,
    prices: OneSided,
    carry: f64,
}

/// The last window.
#[derive(Clone, Copy, Debug)]
struct Watched {
    window_ns: f64,
    /// Calls per nanosecond.
    rate: f64,
    /// Length times gap of the first cycle, whose variance waits for a second window to compare with; then 0.
    unjudged: f64,
}

/// The i-th window's variance is 1 + 9 / i times what its difference says: a variance from few values is often far too
/// small, most of all when calls come in phases that a few windows can miss.
const EARLY_INFLATION: f64 = 9.0;

/// A single window says nothing about how much windows differ.
const FIRST_INFLATION: f64 = 2.0;

/// Twice what would just reach the error of a trend at 1.96 standard deviations.
const TREND_WEIGHT: f64 = 0.5;

/// No program is taken to be steadier than this from one cycle to the next, as a share of its calls: a few windows may be
/// alike by chance. After so many windows they count for more than this does.
const STEADIEST: f64 = 0.1;
const STEADY_AFTER: f64 = 8.0;

/// The standard deviation of what a probe is thought to cost, as a share of it. It is the same in all windows.
const PRICE_ERROR: f64 = 0.15;

impl Estimator {
    pub fn cycle(&mut self, cycle: &Cycle) -> Estimated {
        if cycle.window_ns == 0 {
            let unseen = self.tail(cycle.length_ns);
            return Estimated { count: unseen.count.saturating_add(cycle.seen), ..unseen };
        }
        let window_ns = cycle.window_ns as f64;
        let length_ns = cycle.length_ns.max(cycle.window_ns) as f64;
        let gap_ns = length_ns - window_ns;
        let rate = cycle.seen as f64 / window_ns;

        self.windows = self.windows.saturating_add(1);
        let counting = self.calls_at_stake(cycle.seen) * length_ns * gap_ns / (window_ns * window_ns);
        let (variance, unjudged) = match self.last {
            Some(last) => (self.compare(rate - last.rate, gap_ns, length_ns * gap_ns + last.unjudged, counting), 0.0),
            None => (FIRST_INFLATION * counting, length_ns * gap_ns),
        };
        self.last = Some(Watched { window_ns, rate, unjudged });
        let steadiest = STEADIEST * rate * gap_ns;
        let variance = variance.max(steadiest * steadiest * (STEADY_AFTER / f64::from(self.windows)).min(1.0));
        let by_prices = PRICE_ERROR * rate * gap_ns * (cycle.held_up_ns as f64 / window_ns);
        let variance = variance + self.prices.follow(by_prices, 1.0);
        self.round(cycle.seen as f64 * (length_ns / window_ns), variance)
    }

    /// The stretch after the last window, until the function is watched without gaps again or its thread ends. Nothing
    /// in it was seen: it is taken to go on as in the last window, which may be as wrong as windows differ.
    pub fn tail(&mut self, length_ns: u64) -> Estimated {
        let Some(last) = self.last else {
            return self.round(0.0, 0.0);
        };
        let length_ns = length_ns as f64;
        let calls = (last.rate * last.window_ns).max(self.calls_missed());
        let counting = calls * length_ns * (length_ns + last.window_ns) / (last.window_ns * last.window_ns);
        let differences = f64::from(self.windows.saturating_sub(1).max(1));
        let between = self.squares / differences * length_ns * length_ns;
        self.round(last.rate * length_ns, between.max(counting))
    }

    /// The variance of a cycle from its window's difference to the one before: half of the square, as both windows vary.
    /// It is never less than that of counting calls, since two windows may be alike by chance.
    fn compare(&mut self, difference: f64, gap_ns: f64, weight: f64, counting: f64) -> f64 {
        let square = difference * difference;
        self.squares += square;
        let early = 1.0 + EARLY_INFLATION / f64::from(self.windows);
        let between = early * weight * square / 2.0;
        // A window ends its cycle, so where rates keep rising, or keep falling, its own is ahead of the cycle's mean by
        // half of a step.
        between.max(counting) + self.trend.follow(difference * gap_ns / 2.0, TREND_WEIGHT)
    }

    /// The calls of a window that may as well have been outside it.
    fn calls_at_stake(&mut self, seen: u64) -> f64 {
        self.empty_windows = if seen == 0 { self.empty_windows.saturating_add(1) } else { 0 };
        (seen as f64).max(self.calls_missed())
    }

    /// An empty window may have missed a call, which is the less likely the more of them follow each other.
    fn calls_missed(&self) -> f64 {
        1.0 / f64::from(self.empty_windows.max(1))
    }

    fn round(&mut self, calls: f64, variance: f64) -> Estimated {
        let exact = calls + self.carry;
        let whole = exact.round().max(0.0);
        self.carry = exact - whole;
        Estimated { count: whole as u64, variance }
    }
}

/// Errors that are all of one sign and add up, where those of independent windows mostly cancel.
#[derive(Clone, Debug, Default)]
struct OneSided {
    error: f64,
    /// The variance handed out so far.
    covered: f64,
}

impl OneSided {
    /// The variance that the error adds to what is already covered.
    fn follow(&mut self, error: f64, weight: f64) -> f64 {
        self.error += error;
        let before = self.covered;
        self.covered = before.max(weight * self.error * self.error);
        self.covered - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: f64 = 0.02;

    /// Share of the time in windows, and seconds: from a dozen windows to a hundred.
    const RUNS: [(f64, f64); 6] = [(0.02, 20.0), (0.05, 5.0), (0.05, 10.0), (0.05, 20.0), (0.1, 5.0), (0.1, 20.0)];

    /// How many calls there are until a time, on average.
    type Calls = Box<dyn Fn(f64) -> f64>;

    #[derive(Clone, Copy)]
    enum Arrival {
        Paced,
        Poisson,
    }

    #[test]
    fn calls_at_random_times_are_within_the_interval() {
        check(Arrival::Poisson, |_, _| Box::new(|time| 20_000.0 * time));
    }

    #[test]
    fn steady_calls_are_within_the_interval() {
        check(Arrival::Paced, |_, _| Box::new(|time| 20_000.0 * time));
    }

    #[test]
    fn calls_in_phases_about_as_long_as_a_window_are_within_the_interval() {
        check(Arrival::Paced, |random, _| phases(random, 0.1, 0.3));
    }

    #[test]
    fn calls_in_phases_of_a_second_are_within_the_interval() {
        check(Arrival::Paced, |random, _| phases(random, 2.0, 0.5));
    }

    #[test]
    fn calls_that_slowly_become_more_are_within_the_interval() {
        check(Arrival::Poisson, |_, seconds| Box::new(move |time| 20_000.0 * (time + time * time / seconds / 2.0)));
    }

    #[test]
    fn steady_calls_that_slowly_become_fewer_are_within_the_interval() {
        check(Arrival::Paced, |_, seconds| {
            Box::new(move |time| 300_000.0 * (2.0 * time - time * time / seconds / 2.0))
        });
    }

    #[test]
    fn calls_that_suddenly_become_more_are_within_the_interval() {
        check(Arrival::Poisson, |random, seconds| {
            let jump = seconds * random.between(0.3, 0.7);
            Box::new(move |time| 10_000.0 * (time + 4.0 * (time - jump).max(0.0)))
        });
    }

    #[test]
    fn rare_calls_are_within_the_interval() {
        check(Arrival::Poisson, |_, _| Box::new(|time| 5.0 * time));
    }

    #[test]
    fn the_interval_of_steady_calls_is_narrow() {
        let run = simulate(&mut Random(1), Arrival::Paced, &|time| 20_000.0 * time, (0.05, 10.0));
        assert!(run.half_width <= 0.04 * run.truth, "{} of {}", run.half_width, run.truth);
    }

    #[test]
    fn a_window_that_is_the_whole_cycle_is_exact() {
        let mut estimator = Estimator::default();
        let all = Cycle { length_ns: 1_000, window_ns: 1_000, seen: 7, held_up_ns: 0 };
        assert_eq!(estimator.cycle(&all), Estimated { count: 7, variance: 0.0 });
        assert_eq!(estimator.cycle(&Cycle { seen: 900, ..all }), Estimated { count: 900, variance: 0.0 });
    }

    #[test]
    fn a_stretch_without_a_window_goes_on_as_the_last_one_did() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.tail(1_000), Estimated { count: 0, variance: 0.0 });
        estimator.cycle(&Cycle { length_ns: 1_000, window_ns: 100, seen: 5, held_up_ns: 0 });
        let tail = estimator.tail(400);
        assert_eq!(tail.count, 20);
        assert!(tail.variance > 0.0);
        assert_eq!(estimator.cycle(&Cycle { length_ns: 400, ..Cycle::default() }), tail);
    }

    #[test]
    fn what_probes_are_thought_to_cost_may_be_wrong_in_every_window_alike() {
        let mut estimator = Estimator::default();
        let mut add = |held_up_ns| {
            let cycle = Cycle { length_ns: 100_000, window_ns: 5_000, seen: 1_000_000, held_up_ns };
            (0..16).map(|_| estimator.cycle(&cycle).variance).sum::<f64>().sqrt()
        };
        let steady = add(0);
        // A fifth of each window, wrong by 15 % in each: 3 % of what is in the gaps, however many there are.
        let in_gaps = 16.0 * 19_000_000.0;
        let doubtful = add(1_000);
        assert!(steady < doubtful && (1.0..1.3).contains(&(doubtful / (0.03 * in_gaps))), "{steady} {doubtful}");
    }

    #[test]
    fn rounding_does_not_add_up() {
        let mut estimator = Estimator::default();
        let third = Cycle { length_ns: 4_000, window_ns: 3_000, seen: 1, held_up_ns: 0 };
        let total: u64 = (0..3_000).map(|_| estimator.cycle(&third).count).sum();
        assert_eq!(total, 4_000);
    }

    proptest! {
        #[test]
        fn no_cycle_breaks_the_estimate(cycles in proptest::collection::vec((odd(), odd(), odd(), odd()), 1..20), tail in odd()) {
            let mut estimator = Estimator::default();
            for (length_ns, window_ns, seen, held_up_ns) in cycles {
                let estimated = estimator.cycle(&Cycle { length_ns, window_ns, seen, held_up_ns });
                prop_assert!(estimated.variance.is_finite() && estimated.variance >= 0.0);
                // A float has 53 bits.
                prop_assert!(estimated.count >= seen - (seen >> 50));
            }
            let estimated = estimator.tail(tail);
            prop_assert!(estimated.variance.is_finite() && estimated.variance >= 0.0);
        }
    }

    fn odd() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..1_000u64, any::<u64>()]
    }

    /// Of 100 runs of each length, at least 95 have the true number of calls in their interval.
    fn check(arrival: Arrival, shape: impl Fn(&mut Random, f64) -> Calls) {
        for (share, seconds) in RUNS {
            let mut random = Random(2026);
            let inside = (0..100).filter(|_| {
                let calls = shape(&mut random, seconds);
                let run = simulate(&mut random, arrival, &calls, (share, seconds));
                (run.truth - run.estimate).abs() <= run.half_width
            });
            let inside = inside.count();
            assert!(inside >= 95, "{inside} of 100 at {share} of {seconds} s");
        }
    }

    /// Busy for a share of each period, from a random point of it on.
    fn phases(random: &mut Random, period: f64, busy: f64) -> Calls {
        let offset = random.between(0.0, 1.0);
        Box::new(move |time| {
            let periods = time / period + offset;
            20_000.0 * period * busy * (periods.floor() + (periods.fract() / busy).min(1.0))
        })
    }

    struct Run {
        truth: f64,
        estimate: f64,
        half_width: f64,
    }

    /// Windows after gaps of random length, and a tail.
    fn simulate(
        random: &mut Random,
        arrival: Arrival,
        calls: &dyn Fn(f64) -> f64,
        (share, seconds): (f64, f64),
    ) -> Run {
        let offset = random.between(0.0, 1.0);
        let count = |random: &mut Random, from: f64, until: f64| match arrival {
            Arrival::Paced => (calls(until) + offset).floor() - (calls(from) + offset).floor(),
            Arrival::Poisson => random.poisson(calls(until) - calls(from)),
        };
        let mut estimator = Estimator::default();
        let (mut time, mut truth, mut estimate, mut variance) = (0.0, 0.0, 0.0, 0.0);
        while time < seconds {
            let gap = (WINDOW / share - WINDOW) * random.between(0.5, 1.5);
            let start = (time + gap).min(seconds);
            truth += count(random, time, start);
            let estimated = if start + WINDOW <= seconds {
                let seen = count(random, start, start + WINDOW);
                truth += seen;
                let (length_ns, window_ns) = (nanoseconds(start + WINDOW - time), nanoseconds(WINDOW));
                estimator.cycle(&Cycle { length_ns, window_ns, seen: seen as u64, held_up_ns: 0 })
            } else {
                truth += count(random, start, seconds);
                estimator.tail(nanoseconds(seconds - time))
            };
            estimate += estimated.count as f64;
            variance += estimated.variance;
            time = start + WINDOW;
        }
        Run { truth, estimate, half_width: 1.96 * variance.sqrt() }
    }

    fn nanoseconds(seconds: f64) -> u64 {
        (seconds * 1e9) as u64
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn between(&mut self, low: f64, high: f64) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            low + (high - low) * ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Large numbers by the normal distribution, which a sum of twelve uniform ones is close to.
        fn poisson(&mut self, mean: f64) -> f64 {
            if mean > 50.0 {
                let normal = (0..12).map(|_| self.between(-0.5, 0.5)).sum::<f64>();
                return (mean + mean.sqrt() * normal).round().max(0.0);
            }
            let mut count = 0.0;
            let mut product = self.between(0.0, 1.0);
            while product > (-mean).exp() {
                product *= self.between(0.0, 1.0);
                count += 1.0;
            }
            count
        }
    }
}
