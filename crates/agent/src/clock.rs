//! The kernel's monotonic clock in Unix time.
//!
//! The offset between the two is constant except when somebody sets the wall clock. Each stretch with one offset is
//! an anchor; a monotonic time is converted with the anchor it falls into, so that a time always converts the same
//! way, whenever it is looked at.

/// From `monotonic_ns` on, Unix time is monotonic time plus `offset_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub monotonic_ns: u64,
    pub offset_ns: i64,
}

#[derive(Clone, Debug)]
pub struct Clock {
    anchors: Vec<Anchor>,
}

/// Slewing by NTP stays below this for hours; a step is larger.
const STEP_NS: u64 = 1_000_000;

impl Clock {
    pub fn new(reading: Reading) -> Self {
        Self { anchors: vec![Anchor { monotonic_ns: 0, offset_ns: reading.offset_ns() }] }
    }

    /// Compares with both clocks as they stand; returns a new anchor if the wall clock was set meanwhile.
    pub fn check(&mut self, reading: Reading) -> Option<Anchor> {
        let current = self.anchors.last()?.offset_ns;
        if reading.offset_ns().abs_diff(current) < STEP_NS {
            return None;
        }
        let anchor = Anchor { monotonic_ns: reading.monotonic_ns, offset_ns: reading.offset_ns() };
        self.anchors.push(anchor);
        Some(anchor)
    }

    pub fn unix_ns(&self, monotonic_ns: u64) -> u64 {
        let at = self.anchors.partition_point(|anchor| anchor.monotonic_ns <= monotonic_ns);
        let offset = self.anchors.get(at.saturating_sub(1)).map_or(0, |anchor| anchor.offset_ns);
        monotonic_ns.saturating_add_signed(offset)
    }

    pub fn first(&self) -> Anchor {
        self.anchors[0]
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    pub monotonic_ns: u64,
    pub unix_ns: u64,
}

impl Reading {
    /// The closest of a few tries, in case the thread is interrupted between the two clocks.
    pub fn now() -> Self {
        let try_once = || {
            let before = read(libc::CLOCK_MONOTONIC);
            let unix_ns = read(libc::CLOCK_REALTIME);
            let after = read(libc::CLOCK_MONOTONIC);
            (after - before, Self { monotonic_ns: before + (after - before) / 2, unix_ns })
        };
        let tries = [try_once(), try_once(), try_once()];
        tries.into_iter().min_by_key(|(gap, _)| *gap).map_or(tries[0].1, |(_, reading)| reading)
    }

    pub fn offset_ns(self) -> i64 {
        self.unix_ns as i64 - self.monotonic_ns as i64
    }
}

/// One of the clocks that every Linux has.
pub fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; a clock that does not exist leaves it as it is.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic_ns: u64, unix_ns: u64) -> Reading {
        Reading { monotonic_ns, unix_ns }
    }

    #[test]
    fn slewing_does_not_move_times_that_were_already_converted() {
        let mut clock = Clock::new(reading(1_000, 5_000_000_000));
        assert_eq!(clock.check(reading(2_000, 5_000_001_400)), None);
        assert_eq!(clock.unix_ns(1_500), 5_000_000_500);
    }

    #[test]
    fn a_step_moves_later_times_only() {
        let mut clock = Clock::new(reading(1_000, 1_000_001_000));
        let anchor = clock.check(reading(10_000_000, 7_010_000_000)).unwrap();
        assert_eq!(anchor.monotonic_ns, 10_000_000);
        assert_eq!(clock.unix_ns(9_000_000), 1_009_000_000);
        assert_eq!(clock.unix_ns(11_000_000), 7_011_000_000);
    }

    #[test]
    fn the_clocks_of_this_machine_agree_with_the_standard_library() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let clock = Clock::new(Reading::now());
        assert!(clock.unix_ns(Reading::now().monotonic_ns).abs_diff(now) < 1_000_000_000);
    }
}
