//! Parts of a run: loading, warm-up, what it does from then on, and its end. Found from the work that each second brings.

use gpuwhy_model::{Phase, PhaseName, Span};

/// What all threads asked of the GPUs in about one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkSecond {
    /// When it begins.
    pub bucket_ns: u64,
    pub launches: u64,
    /// In calls that load code.
    pub loading_ns: u64,
    /// For which part of it the GPUs worked, by their own word: the least of those that worked at all.
    pub busy: Option<f64>,
}

/// A second with less than this part of the usual work is not one of the steady state's first.
const LEAST_OF_USUAL: f64 = 0.6;

/// A second in which code was loaded for longer is warm-up, if the later ones have none of it.
const LOADING_NS: u64 = 50_000_000;

/// The steady state must have so many seconds, and this part of those with work.
const LEAST_SECONDS: usize = 2;
const LEAST_PART: f64 = 0.5;

/// So long without work, longer than all work before it took, and no more than this part of all work before it: a start
/// that takes long, such as trials of a few steps and then workers that have to come up.
const LONG_START_NS: u64 = 3_000_000_000;
const MOST_TRIALS: f64 = 0.45;

/// Work is so many times as fast once no more code is loaded, for at least this part of the time: until then, algorithms
/// were tried out and compiled.
const FASTER: f64 = 3.0;
const LEAST_FASTER_PART: f64 = 0.25;

/// A GPU that works for this part of each second, from some moment soon after the work is as it stays to the end, is kept
/// waiting for nothing: what came before were trials.
const ALL_BUSY: f64 = 0.9;
const SOON_NS: u64 = 10_000_000_000;
const LEAST_BUSY_SECONDS: usize = 3;

/// Whoever is traced from its start on asks nothing of a GPU for so long.
const SHORTEST_START_NS: u64 = 1_000_000_000;

/// What comes after the last work is a phase of its own from this part of the steady state on.
const LONG_END: f64 = 0.2;

/// In the order of time. Empty where the run has no parts that differ. The second in which a program ends that `has_ended`
/// is a part of its end.
pub fn phases(seconds: &[WorkSecond], span: Span, has_ended: bool) -> Vec<Phase> {
    let Some((first, last)) = working(seconds) else { return Vec::new() };
    let with_work = |seconds: &[WorkSecond]| seconds.iter().filter(|second| second.launches > 0).count() as f64;
    let is_enough = |steady: usize| {
        last + 1 - steady >= LEAST_SECONDS
            && with_work(&seconds[steady..=last]) >= LEAST_PART * with_work(&seconds[first..=last])
    };
    // A program that ends soon after a long start has no second to spare.
    let came_back = || started(&seconds[first..=last]).map(|at| first + at);
    let after_warm_up = warmed_up(&seconds[first..=last]).map_or(first, |after| first + after);
    let until = if has_ended { last } else { last + 1 };
    let tried_out = tried_out(&seconds[first..until]).map(|at| first + at).filter(|&at| at > after_warm_up);
    let is_start = seconds[first].bucket_ns.saturating_sub(span.from_ns) >= SHORTEST_START_NS;
    let all_busy = all_busy(&seconds[after_warm_up.min(until)..until]).map(|at| after_warm_up + at);
    let all_busy = all_busy.filter(|&at| is_start && is_enough(at));
    let warmed_up = tried_out.max(all_busy).or_else(|| Some(after_warm_up).filter(|&at| is_enough(at)));
    let Some(steady) = warmed_up.or_else(came_back) else { return Vec::new() };
    let begins_ns =
        |at: usize| seconds.get(at).map_or(span.to_ns, |second| second.bucket_ns.clamp(span.from_ns, span.to_ns));
    let steady_ns = if steady == 0 { span.from_ns } else { begins_ns(steady) };
    let is_cut = has_ended && last - steady >= LEAST_SECONDS;
    let end_ns = begins_ns(if is_cut { last } else { last + 1 });
    let has_end = is_cut || (span.to_ns - end_ns) as f64 > LONG_END * (end_ns - steady_ns) as f64;
    let first_ns = if first == 0 { span.from_ns } else { begins_ns(first) };
    let steady_to_ns = if has_end { end_ns } else { span.to_ns };
    let all = [
        (PhaseName::Load, span.from_ns, first_ns),
        (PhaseName::WarmUp, first_ns, steady_ns),
        (PhaseName::Steady, steady_ns, steady_to_ns),
        (PhaseName::End, steady_to_ns, span.to_ns),
    ];
    let phase = |(name, from_ns, to_ns)| Phase { name, from_ns, to_ns, steps: None, step_p50_ns: None };
    all.into_iter().filter(|(_, from_ns, to_ns)| from_ns < to_ns).map(phase).collect()
}

/// The first and the last second with work.
fn working(seconds: &[WorkSecond]) -> Option<(usize, usize)> {
    let has_work = |second: &WorkSecond| second.launches > 0;
    Some((seconds.iter().position(has_work)?, seconds.iter().rposition(has_work)?))
}

/// How many seconds pass before the work is as it stays.
fn warmed_up(seconds: &[WorkSecond]) -> Option<usize> {
    let usual = usual(seconds.iter())?;
    let starts = seconds.iter().position(|second| second.launches as f64 >= LEAST_OF_USUAL * usual)?;
    // Whoever loads code all the time has no warm-up but a problem.
    let (early, late) = seconds.split_at(seconds.len().div_ceil(3));
    let loads = |second: &WorkSecond| second.loading_ns >= LOADING_NS;
    let loaded = if late.iter().any(loads) { 0 } else { early.iter().rposition(loads).map_or(0, |last| last + 1) };
    // Work came back in the middle of that second.
    Some(starts.max(loaded).max(started(seconds).map_or(0, |at| at + 1)))
}

/// The second in which work comes back after the last long time without it that hardly any work came before. Seconds in
/// which nothing was called are not among them.
fn started(seconds: &[WorkSecond]) -> Option<usize> {
    let most = MOST_TRIALS * seconds.iter().map(|second| second.launches as f64).sum::<f64>();
    let working = || seconds.iter().enumerate().filter(|(_, second)| second.launches > 0);
    let (mut done, mut started) = (0.0, None);
    for ((_, last), (at, second)) in working().zip(working().skip(1)) {
        done += last.launches as f64;
        let pause_ns = second.bucket_ns.saturating_sub(last.bucket_ns);
        let before_ns = last.bucket_ns.saturating_sub(seconds[0].bucket_ns);
        if pause_ns > LONG_START_NS.max(before_ns) && done <= most {
            started = Some(at);
        }
    }
    started
}

/// The second after the last one in which code was loaded, if work is much faster from then on.
fn tried_out(seconds: &[WorkSecond]) -> Option<usize> {
    let (before, after) = seconds.split_at(seconds.iter().rposition(|second| second.loading_ns > 0)? + 1);
    let each = |seconds: &[WorkSecond]| {
        seconds.iter().map(|second| second.launches as f64).sum::<f64>() / seconds.len().max(1) as f64
    };
    let is_long = after.len() >= LEAST_SECONDS && after.len() as f64 >= LEAST_FASTER_PART * seconds.len() as f64;
    (is_long && each(after) >= FASTER * each(before)).then_some(before.len())
}

/// The second from which on the GPUs work all the time. They are not asked in every single one.
fn all_busy(seconds: &[WorkSecond]) -> Option<usize> {
    let at = seconds.iter().rposition(|second| second.busy.is_some_and(|busy| busy < ALL_BUSY))? + 1;
    let begins_ns = seconds.get(at)?.bucket_ns;
    let is_soon = begins_ns.saturating_sub(seconds[0].bucket_ns) <= SOON_NS;
    let asked = seconds[at..].iter().filter(|second| second.busy.is_some()).count();
    (is_soon && asked >= LEAST_BUSY_SECONDS && asked * 2 > seconds.len() - at).then_some(at)
}

/// The launches of a usual second, of those that have any.
pub(crate) fn usual<'s>(seconds: impl Iterator<Item = &'s WorkSecond>) -> Option<f64> {
    let mut launches: Vec<u64> = seconds.map(|second| second.launches).filter(|&launches| launches > 0).collect();
    launches.sort_unstable();
    launches.get(launches.len() / 2).map(|&launches| launches as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn seconds(launches: &[u64], loading: &[usize]) -> Vec<WorkSecond> {
        let second = |(at, &launches): (usize, &u64)| {
            let loading_ns = if loading.contains(&at) { LOADING_NS } else { 0 };
            WorkSecond { bucket_ns: at as u64 * S, launches, loading_ns, busy: None }
        };
        launches.iter().enumerate().map(second).collect()
    }

    fn found(launches: &[u64], loading: &[usize]) -> Vec<(&'static str, u64, u64)> {
        let phases = phases(&seconds(launches, loading), Span { from_ns: 0, to_ns: launches.len() as u64 * S }, false);
        phases.iter().map(|phase| (phase.name.as_str(), phase.from_ns / S, phase.to_ns / S)).collect()
    }

    #[test]
    fn imports_come_before_the_first_work_and_are_not_steady_state() {
        assert_eq!(found(&[0, 0, 0, 40, 100, 100, 90], &[]), [("load", 0, 3), ("warm-up", 3, 4), ("steady", 4, 7)]);
    }

    #[test]
    fn a_run_that_is_the_same_all_the_time_is_all_steady() {
        assert_eq!(found(&[100, 100, 100], &[]), [("steady", 0, 3)]);
    }

    #[test]
    fn code_that_is_loaded_first_is_warm_up_and_code_that_is_always_loaded_is_not() {
        assert_eq!(found(&[100, 100, 100, 100, 100, 100], &[0]), [("warm-up", 0, 1), ("steady", 1, 6)]);
        assert_eq!(found(&[100; 6], &[0, 1, 2, 3, 4, 5]), [("steady", 0, 6)]);
    }

    #[test]
    fn algorithms_that_are_tried_out_for_longer_than_the_rest_takes_are_warm_up() {
        let launches = [10, 40, 20, 10, 40, 10, 60, 500, 500, 400, 500];
        let loading: Vec<usize> = (0..7).collect();
        assert_eq!(found(&launches, &loading), [("warm-up", 0, 7), ("steady", 7, 11)]);
        assert_eq!(found(&[100; 11], &loading), [("steady", 0, 11)], "it goes on as before");
        let expected = [("warm-up", 0, 1), ("steady", 1, 11)];
        assert_eq!(found(&launches, &[0, 3, 10]), expected, "code is loaded to the end");
    }

    #[test]
    fn a_long_time_after_the_last_work_is_the_end_and_a_short_one_is_not() {
        assert_eq!(found(&[100, 100, 100, 100, 0, 0], &[]), [("steady", 0, 4), ("end", 4, 6)]);
        assert_eq!(found(&[100, 100, 100, 100, 100, 100, 100, 0], &[]), [("steady", 0, 8)]);
    }

    #[test]
    fn the_second_in_which_a_program_ends_is_a_part_of_its_end() {
        let told = |launches: &[u64]| {
            let phases = phases(&seconds(launches, &[]), Span { from_ns: 0, to_ns: 8 * S }, true);
            phases.iter().map(|phase| (phase.name.as_str(), phase.from_ns / S, phase.to_ns / S)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[100; 7]), [("steady", 0, 6), ("end", 6, 8)]);
        assert_eq!(told(&[100, 100]), [("steady", 0, 8)], "there is not much else");
    }

    #[test]
    fn a_pause_is_part_of_what_a_program_does() {
        assert_eq!(found(&[0, 100, 100, 0, 0, 0, 100, 100], &[]), [("load", 0, 1), ("steady", 1, 8)]);
    }

    #[test]
    fn trials_before_a_long_start_are_warm_up() {
        let launches = [0, 40, 100, 0, 0, 0, 0, 0, 0, 100, 100, 100, 100, 100];
        let expected = [("load", 0, 1), ("warm-up", 1, 10), ("steady", 10, 14)];
        assert_eq!(found(&launches, &[]), expected);
        let mut called = seconds(&launches, &[]);
        called.retain(|second| second.launches > 0 || second.bucket_ns == 0);
        let told = phases(&called, Span { from_ns: 0, to_ns: 14 * S }, false);
        let told: Vec<_> = told.iter().map(|phase| (phase.name.as_str(), phase.from_ns / S, phase.to_ns / S)).collect();
        assert_eq!(told, expected, "seconds without any call have no row");
    }

    #[test]
    fn a_program_that_ends_soon_after_a_long_start_is_judged_by_what_came_after_it() {
        let expected = [("load", 0, 1), ("warm-up", 1, 6), ("steady", 6, 8)];
        assert_eq!(found(&[0, 17, 0, 0, 0, 0, 400, 1500], &[]), expected);
        let expected = [("load", 0, 1), ("warm-up", 1, 6), ("steady", 6, 7)];
        assert_eq!(found(&[0, 17, 0, 0, 0, 0, 1500], &[]), expected);
        assert_eq!(found(&[0, 1000, 0, 0, 0, 0, 500], &[]), [("load", 0, 1), ("steady", 1, 7)], "those were no trials");
    }

    #[test]
    fn trials_are_over_once_the_gpu_works_all_the_time() {
        let told = |busy: &[f64], first: usize| {
            let mut seconds = seconds(&vec![100; busy.len()], &[]);
            seconds.iter_mut().zip(busy).for_each(|(second, &busy)| second.busy = Some(busy));
            seconds[..first].iter_mut().for_each(|second| second.launches = 0);
            let phases = phases(&seconds, Span { from_ns: 0, to_ns: busy.len() as u64 * S }, true);
            phases.iter().map(|phase| (phase.name.as_str(), phase.from_ns / S, phase.to_ns / S)).collect::<Vec<_>>()
        };
        let trials = [0.0, 0.0, 0.4, 0.7, 0.99, 0.98, 0.99, 0.97, 0.3];
        let expected = [("load", 0, 2), ("warm-up", 2, 4), ("steady", 4, 8), ("end", 8, 9)];
        assert_eq!(told(&trials, 2), expected);
        let expected = [("steady", 0, 8), ("end", 8, 9)];
        assert_eq!(told(&trials, 0), expected, "nobody saw it start");
        let expected = [("load", 0, 2), ("steady", 2, 8), ("end", 8, 9)];
        assert_eq!(told(&[0.0, 0.0, 0.4, 0.7, 0.9, 0.6, 0.99, 0.97, 0.3], 2), expected, "it has to wait now and then");
        assert_eq!(told(&[0.0, 0.0, 0.4, 0.4, 0.4, 0.4, 0.99, 0.99, 0.3], 2), expected, "most of it was like that");
    }

    #[test]
    fn a_run_without_work_or_with_a_moment_of_it_has_no_phases() {
        assert_eq!(found(&[], &[]), []);
        assert_eq!(found(&[0, 0, 0], &[]), []);
        assert_eq!(found(&[0, 0, 100], &[]), []);
    }
}
