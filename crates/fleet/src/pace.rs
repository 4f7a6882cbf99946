//! Workers that wait for nobody, compared by how long their steps take: those of the same program in the same job.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::digest::Digest;

/// Fewer workers tell nothing of what is usual.
const FEWEST: usize = 3;
/// From so many on, how far they lie apart tells what is unusual.
const MANY: usize = 6;
/// Seconds over which a worker's steps are added up.
const SPAN: usize = 5;
/// Steps in that time, at least.
const FEWEST_STEPS: u64 = 5;
/// A worker whose steps take so many times as long as they usually do is slow: of many, and of few.
const TIMES_OF_MANY: f64 = 1.1;
const TIMES_OF_FEW: f64 = 1.25;
/// What lies within so many deviations of the usual is usual.
const DEVIATIONS: f64 = 6.0 * 1.4826;
/// So many seconds in a row make a worker slow, and so many others make it slow no more.
const IN_A_ROW: u32 = 5;
const QUIET: u32 = 10;

/// Workers of one program in one job: the job, and what the program is called.
pub type Team = (String, String);

/// The team of a worker. One without a job may be anything, and one that has ranks to wait for is compared with these.
pub fn team(digest: &Digest) -> Option<Team> {
    let job = digest.worker.labels.get("job").filter(|_| digest.parts.is_empty())?;
    Some((job.clone(), digest.worker.comm.clone()))
}

/// How fast a worker is.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Steps of the last seconds, and how long they took.
    seconds: VecDeque<(u64, u64)>,
    /// How many times as long as usual its steps take.
    pub times: f64,
    pub since_ns: Option<u64>,
    over: u32,
    under: u32,
    first_over_ns: u64,
}

/// What has become of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    BecameSlow,
    IsSlowNoMore { since_ns: u64 },
}

impl Pace {
    pub fn take(&mut self, digest: &Digest) {
        let steps = u64::from(digest.steps);
        self.seconds.push_back((steps, steps.saturating_mul(digest.step_ns.unwrap_or(0))));
        if self.seconds.len() > SPAN {
            self.seconds.pop_front();
        }
    }

    /// How long a step takes, where enough of them were told.
    fn step_ns(&self) -> Option<u64> {
        let (steps, ns) =
            self.seconds.iter().fold((0, 0_u64), |(steps, ns), one| (steps + one.0, ns.saturating_add(one.1)));
        (self.seconds.len() == SPAN && steps >= FEWEST_STEPS && ns > 0).then(|| ns / steps)
    }

    fn see(&mut self, own_ns: u64, usual: &Usual, now_ns: u64) -> Option<Change> {
        self.times = own_ns as f64 / usual.step_ns as f64;
        if self.times >= usual.threshold {
            if self.over == 0 {
                self.first_over_ns = now_ns;
            }
            (self.over, self.under) = (self.over + 1, 0);
            if self.over >= IN_A_ROW && self.since_ns.is_none() {
                self.since_ns = Some(self.first_over_ns);
                return Some(Change::BecameSlow);
            }
            return None;
        }
        (self.over, self.under) = (0, self.under + 1);
        if self.under >= QUIET { self.since_ns.take().map(|since_ns| Change::IsSlowNoMore { since_ns }) } else { None }
    }
}

/// What is usual in a team.
struct Usual {
    step_ns: u64,
    /// To take so many times as long is not.
    threshold: f64,
}

impl Usual {
    fn of(mut steps: Vec<u64>) -> Option<Self> {
        if steps.len() < FEWEST {
            return None;
        }
        steps.sort_unstable();
        let step_ns = steps[steps.len() / 2].max(1);
        if steps.len() < MANY {
            return Some(Self { step_ns, threshold: TIMES_OF_FEW });
        }
        let mut apart: Vec<u64> = steps.iter().map(|ns| ns.abs_diff(step_ns)).collect();
        apart.sort_unstable();
        let unusual = 1.0 + apart[apart.len() / 2] as f64 * DEVIATIONS / step_ns as f64;
        Some(Self { step_ns, threshold: unusual.max(TIMES_OF_MANY) })
    }
}

/// Compares workers that told something within the last second, and says what has become of which.
pub fn compare<'p, K: Copy>(workers: impl Iterator<Item = (Team, K, &'p mut Pace)>, now_ns: u64) -> Vec<(K, Change)> {
    let mut teams: HashMap<Team, Vec<(K, u64, &'p mut Pace)>> = HashMap::new();
    for (team, key, pace) in workers {
        if let Some(step_ns) = pace.step_ns() {
            teams.entry(team).or_default().push((key, step_ns, pace));
        }
    }
    let mut changes = Vec::new();
    for team in teams.into_values() {
        let Some(usual) = Usual::of(team.iter().map(|(_, step_ns, _)| *step_ns).collect()) else { continue };
        let seen = team.into_iter().filter_map(|(key, own_ns, pace)| Some((key, pace.see(own_ns, &usual, now_ns)?)));
        changes.extend(seen);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Worker;

    const MS: u64 = 1_000_000;
    const S: u64 = 1000 * MS;

    fn digest(step_ms: f64) -> Digest {
        let step_ns = (step_ms * MS as f64) as u64;
        Digest { steps: (S / step_ns) as u32, step_ns: Some(step_ns), ..Digest::default() }
    }

    /// Who changes in which second, by how long their steps take.
    fn changes(workers: usize, seconds: u64, step_ms: impl Fn(usize, u64) -> f64) -> Vec<(usize, u64, Change)> {
        let mut paces = vec![Pace::default(); workers];
        let mut all = Vec::new();
        for second in 0..seconds {
            paces.iter_mut().enumerate().for_each(|(at, pace)| pace.take(&digest(step_ms(at, second))));
            let told = paces.iter_mut().enumerate().map(|(at, pace)| (Team::default(), at, pace));
            all.extend(compare(told, second).into_iter().map(|(who, change)| (who, second, change)));
        }
        all
    }

    #[test]
    fn the_worker_whose_steps_take_longer_is_slow_until_they_do_no_more() {
        let found = changes(8, 60, |at, second| if at == 3 && (10..30).contains(&second) { 52.0 } else { 40.0 });
        let [(3, from, Change::BecameSlow), (3, to, Change::IsSlowNoMore { since_ns })] = found[..] else {
            panic!("{found:?}")
        };
        assert!((14..=18).contains(&from) && (38..=48).contains(&to) && (10..=14).contains(&since_ns), "{found:?}");
    }

    #[test]
    fn one_that_is_slow_from_its_first_second_is_found() {
        assert_eq!(changes(3, 20, |at, _| if at == 0 { 60.0 } else { 40.0 }).len(), 1);
    }

    #[test]
    fn a_job_in_which_all_are_slow_has_no_slow_worker() {
        assert_eq!(changes(8, 60, |_, second| if second < 20 { 40.0 } else { 90.0 }), []);
    }

    #[test]
    fn workers_that_differ_make_differences_usual_and_two_tell_nothing() {
        assert_eq!(changes(9, 60, |at, _| 40.0 + at as f64 * 4.0), []);
        assert_eq!(changes(2, 60, |at, _| if at == 0 { 90.0 } else { 40.0 }), []);
        // A server whose requests take what they take.
        let odd = |at: usize, second: u64| 40.0 + ((at as u64 * 31 + second * 17) % 23) as f64;
        assert_eq!(changes(8, 120, odd), []);
    }

    #[test]
    fn only_workers_of_a_job_that_wait_for_nobody_have_a_team() {
        let labels = [("job".to_owned(), "llm".to_owned())].into();
        let mut one = Digest { worker: Worker { labels, ..Worker::default() }, ..Digest::default() };
        assert_eq!(team(&one), Some(("llm".to_owned(), String::new())));
        one.parts = vec![crate::Part { communicator: 1, rank: 0, ranks: 2, operations: 1, waited_ns: 0, done_ns: 0 }];
        assert_eq!((team(&one), team(&Digest::default())), (None, None));
    }
}
