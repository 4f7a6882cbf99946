//! What the clocks of hosts differ by, from the collective operations that their ranks took part in.
//!
//! No rank is done with an operation before the last one has asked for it: that is a bound for the difference, from each
//! operation. And ranks that wait for an operation are done with it at about the same time: that is an estimate.

use std::collections::BTreeMap;

use gpuwhy_model::HAD_TO_WAIT_NS;
use gpuwhy_window::Window;

/// So many operations of a host are looked at, or half as many.
const MOST_MEETINGS: usize = 20_000;

/// The error of an estimate, in terms of how far half of the operations are from it at most. Single ones may be far off: a
/// rank that waits for a CPU is done later than it could be.
const DEVIATIONS: u64 = 2;

/// What a host knows of an operation that no rank can leave before all have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// When the last of its ranks asked.
    pub asked_ns: u64,
    /// When the first of its ranks was known to be done.
    pub done_ns: Option<u64>,
    /// Whether that one had waited for it.
    pub had_to_wait: bool,
}

/// By communicator and place in its order.
pub type Meetings = BTreeMap<(i64, u64), Meeting>;

/// How to bring the times of a host in line with those of the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alignment {
    /// What to add.
    pub shift_ns: i64,
    /// By how much they may be off then.
    pub error_ns: u64,
}

/// What a trace knows of operations, and of no more than some thousands of them.
pub fn meetings(window: &Window) -> Meetings {
    let rows = || window.collectives.rows.iter().filter(|one| !one.has_root);
    let mut every = 1;
    while rows().count() as u64 / every > MOST_MEETINGS as u64 {
        every *= 2;
    }
    let mut meetings = Meetings::new();
    // Which ones these are is the same on every host, or every second one of them.
    for one in rows().filter(|one| one.sequence.is_multiple_of(every)) {
        let (asked_ns, done_ns, had_to_wait) = (one.start_ns, one.done_ns, one.wait_ns >= HAD_TO_WAIT_NS);
        let own = Meeting { asked_ns, done_ns, had_to_wait };
        let key = (one.communicator, one.sequence);
        meetings.entry(key).and_modify(|known| *known = known.with(own)).or_insert(own);
    }
    meetings
}

/// Adds what another trace of the same host knows.
pub fn unite(meetings: &mut Meetings, other: Meetings) {
    for (key, own) in other {
        meetings.entry(key).and_modify(|known| *known = known.with(own)).or_insert(own);
    }
}

impl Meeting {
    /// What both know together.
    fn with(self, other: Self) -> Self {
        let asked_ns = self.asked_ns.max(other.asked_ns);
        let first = match (self.done_ns, other.done_ns) {
            (Some(own), Some(others)) if others < own => other,
            (None, Some(_)) => other,
            _ => self,
        };
        Self { asked_ns, ..first }
    }
}

/// For each host, how its times fit those of the first one; `None` for a host that has no operation in common with it, nor
/// with one that has.
pub fn align(hosts: &[Meetings]) -> Vec<Option<Alignment>> {
    let mut aligned: Vec<Option<Alignment>> = vec![None; hosts.len()];
    let Some(first) = aligned.first_mut() else { return aligned };
    *first = Some(Alignment::default());
    let mut known = vec![0];
    let mut at = 0;
    while let Some(&from) = known.get(at) {
        at += 1;
        let Some(before) = aligned[from] else { continue };
        for to in 0..hosts.len() {
            let found = if aligned[to].is_none() { difference(&hosts[from], &hosts[to]) } else { None };
            if let Some(found) = found {
                aligned[to] = Some(Alignment {
                    shift_ns: before.shift_ns.saturating_add(found.shift_ns),
                    error_ns: before.error_ns.saturating_add(found.error_ns),
                });
                known.push(to);
            }
        }
    }
    aligned
}

/// What to add to the times of the second host to get those of the first.
fn difference(one: &Meetings, other: &Meetings) -> Option<Alignment> {
    // What it can be at most and at least, and what it seems to be.
    let (mut most, mut least) = (i64::MAX, i64::MIN);
    let mut seeming = Vec::new();
    for (key, own) in one {
        let Some(others) = other.get(key) else { continue };
        if let Some(done_ns) = own.done_ns {
            most = most.min(apart(done_ns, others.asked_ns));
        }
        if let Some(done_ns) = others.done_ns {
            least = least.max(apart(own.asked_ns, done_ns));
        }
        if let (Some(own_ns), Some(others_ns)) = (own.done_ns, others.done_ns)
            && own.had_to_wait
            && others.had_to_wait
        {
            seeming.push(apart(own_ns, others_ns));
        }
    }
    if most == i64::MAX || least == i64::MIN {
        return None;
    }
    let middle = least.midpoint(most);
    let half_ns = most.abs_diff(least).div_ceil(2);
    let Some((seems, error_ns)) = median(seeming) else {
        return Some(Alignment { shift_ns: middle, error_ns: half_ns });
    };
    if least > most {
        // Clocks that run apart: no difference fits all operations.
        return Some(Alignment { shift_ns: middle, error_ns: half_ns.max(error_ns) });
    }
    let shift_ns = seems.clamp(least, most);
    Some(Alignment { shift_ns, error_ns: error_ns.saturating_add(shift_ns.abs_diff(seems)) })
}

/// The middle one, and by how much it may be off.
fn median(mut all: Vec<i64>) -> Option<(i64, u64)> {
    all.sort_unstable();
    let middle = *all.get(all.len() / 2)?;
    let mut apart: Vec<u64> = all.iter().map(|one| one.abs_diff(middle)).collect();
    apart.sort_unstable();
    Some((middle, apart[apart.len() / 2].saturating_mul(DEVIATIONS)))
}

fn apart(one: u64, other: u64) -> i64 {
    one.cast_signed().saturating_sub(other.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Steps of 40 ms of a host whose clock is `off_ns` ahead, and which asks so much later than the first one in each step
    /// while all are done at about the same time.
    fn host(off_ns: i64, late_ns: u64, latest_ns: u64) -> Meetings {
        let at = |ns: u64| (1_700_000_000_000 * MS + ns).checked_add_signed(off_ns).unwrap();
        let meeting = |step: u64| {
            let noise_ns = step * 7919 % 20_000;
            let asked_ns = at(step * 40 * MS + late_ns);
            let done_ns = Some(at(step * 40 * MS + latest_ns + MS + noise_ns));
            ((1, step), Meeting { asked_ns, done_ns, had_to_wait: true })
        };
        (0..200).map(meeting).collect()
    }

    #[test]
    fn clocks_that_are_seconds_apart_are_brought_in_line() {
        for off_ns in [-5_000_000_000, -1, 0, 3_333_333, 5_000_000_000] {
            let aligned = align(&[host(0, 0, 5 * MS), host(off_ns, 5 * MS, 5 * MS), host(-off_ns, 0, 5 * MS)]);
            for (found, off_ns) in aligned.iter().zip([0, off_ns, -off_ns]) {
                let found = found.unwrap();
                assert!(found.error_ns < 50_000, "{found:?}");
                assert!((found.shift_ns + off_ns).unsigned_abs() <= found.error_ns, "{found:?} for {off_ns}");
            }
        }
    }

    #[test]
    fn a_host_with_nothing_in_common_stays_as_it_is() {
        let others = host(77, 0, MS).into_iter().map(|((_, step), meeting)| ((2, step), meeting)).collect();
        assert_eq!(align(&[host(0, 0, MS), others])[1], None);
        assert_eq!(align(&[host(0, 0, MS), Meetings::new()])[1], None);
        assert!(align(&[]).is_empty());
    }

    #[test]
    fn hosts_are_aligned_through_one_that_knows_both() {
        let renamed = |host: Meetings| host.into_iter().map(|((_, step), meeting)| ((2, step), meeting));
        let mut both = host(1_000_000_000, 0, MS);
        both.extend(renamed(host(1_000_000_000, 0, MS)));
        let last = renamed(host(2_000_000_000, 0, MS)).collect();
        let aligned = align(&[host(0, 0, MS), last, both]);
        assert_eq!(aligned[1].unwrap().shift_ns, -2_000_000_000);
    }

    /// Without a wait that was seen to last, only the bounds are known.
    #[test]
    fn what_is_known_of_operations_bounds_the_difference() {
        let quiet = |host: Meetings| -> Meetings {
            host.into_iter().map(|(key, meeting)| (key, Meeting { had_to_wait: false, ..meeting })).collect()
        };
        let found = align(&[quiet(host(0, 0, 4 * MS)), quiet(host(500, 4 * MS, 4 * MS))])[1].unwrap();
        assert!(found.error_ns >= 2 * MS && found.error_ns <= 4 * MS, "{found:?}");
        assert!((found.shift_ns + 500).unsigned_abs() <= found.error_ns, "{found:?}");
    }

    #[test]
    fn clocks_that_run_apart_have_an_error_that_says_so() {
        let drifting = host(0, 0, MS).into_iter().map(|((communicator, step), meeting)| {
            let off_ns = step * MS;
            let done_ns = meeting.done_ns.map(|done_ns| done_ns + off_ns);
            ((communicator, step), Meeting { asked_ns: meeting.asked_ns + off_ns, done_ns, ..meeting })
        });
        let found = align(&[host(0, 0, MS), drifting.collect()])[1].unwrap();
        assert!(found.error_ns > 90 * MS, "{found:?}");
    }
}
