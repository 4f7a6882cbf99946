//! How far the clock of another host is off, found as NTP finds it: an answer says when its request came and when it went.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

const RECEIVED: HeaderName = HeaderName::from_static("gpuwhy-received-ns");
const ANSWERED: HeaderName = HeaderName::from_static("gpuwhy-answered-ns");

/// A clock beside this host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Behind, where negative.
    pub ahead_ns: i64,
    /// How well that is known.
    pub error_ns: u64,
}

/// Clocks that differ by less are as good as the same.
const MUCH_NS: u64 = 100_000_000;

impl Clock {
    /// What an answer says of its host's clock, by this one's times of asking and having it.
    pub fn of(headers: &HeaderMap, asked_ns: u64, had_ns: u64) -> Option<Self> {
        let told = |name| headers.get(name).and_then(|value| value.to_str().ok()?.parse::<i64>().ok());
        let (received, answered) = (told(RECEIVED)?, told(ANSWERED)?);
        let (asked, had) = (i64::try_from(asked_ns).ok()?, i64::try_from(had_ns).ok()?);
        let on_the_way = had.checked_sub(asked)?.checked_sub(answered.checked_sub(received)?)?;
        let there = received.checked_sub(asked)?;
        let back = answered.checked_sub(had)?;
        // A host that says it took longer than the whole of it was has set its clock meanwhile.
        let error_ns = u64::try_from(on_the_way).ok()?.div_ceil(2);
        Some(Self { ahead_ns: there.checked_add(back)? / 2, error_ns })
    }

    /// So far that times of both hosts cannot be compared as they are.
    pub fn is_off(&self) -> bool {
        self.ahead_ns.unsigned_abs() > self.error_ns.saturating_add(MUCH_NS)
    }
}

/// Puts when its request came, and that it goes now, onto an answer.
pub fn stamp(headers: &mut HeaderMap, received_ns: u64) {
    for (name, ns) in [(RECEIVED, received_ns), (ANSWERED, now_ns())] {
        headers.insert(name, HeaderValue::from(ns));
    }
}

/// Nanoseconds since 1970, as this host's clock has them.
pub fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn clock(received_ns: u64, answered_ns: u64, had_ns: u64) -> Option<Clock> {
        let mut headers = HeaderMap::new();
        headers.insert(RECEIVED, HeaderValue::from(received_ns));
        headers.insert(ANSWERED, HeaderValue::from(answered_ns));
        Clock::of(&headers, 100 * SECOND_NS, had_ns)
    }

    #[test]
    fn what_a_clock_is_off_by_is_known_to_half_of_the_way() {
        let (way, work) = (2_000_000, 50_000_000);
        let had_ns = 100 * SECOND_NS + way + work + way;
        for ahead in [0, 5 * SECOND_NS as i64, -3 * SECOND_NS as i64] {
            let received_ns = (100 * SECOND_NS + way).checked_add_signed(ahead).unwrap();
            let clock = clock(received_ns, received_ns + work, had_ns).unwrap();
            assert_eq!(clock, Clock { ahead_ns: ahead, error_ns: way });
            assert_eq!(clock.is_off(), ahead != 0);
        }
    }

    #[test]
    fn an_answer_that_cannot_be_true_says_nothing_of_a_clock() {
        assert_eq!(clock(100 * SECOND_NS, 102 * SECOND_NS, 101 * SECOND_NS), None, "it took longer than all of it");
        assert_eq!(clock(u64::MAX, u64::MAX, 101 * SECOND_NS), None);
        assert_eq!(Clock::of(&HeaderMap::new(), 0, 1), None);
    }
}
