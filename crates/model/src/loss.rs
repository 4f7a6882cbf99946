//! What was not kept, by reason. `seen = stored + sum of losses` holds for every session.

use serde::Serialize;

/// One line per reason: variant, word, is it a call that was seen but not stored, what it means.
/// The first ones are counted in the kernel, in the order of `LOSS_REASONS` in `wire.h`.
macro_rules! reasons {
    ($($variant:ident = $word:literal, $is_call:literal, $meaning:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[repr(u8)]
        pub enum LossReason { $(#[doc = $meaning] #[serde(rename = $word)] $variant,)+ }

        impl LossReason {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Whether each unit is a finished call that is counted in `call_stats` but has no row of its own.
            pub const fn is_call(self) -> bool {
                match self { $(Self::$variant => $is_call,)+ }
            }

            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

reasons! {
    RingFull = "ring_full", true, "finished calls whose record found the ring buffer full";
    Uncounted = "uncounted", false, "calls that were not counted because no counter was free for their thread and function";
    NoThreadState = "no_thread_state", false, "calls that were not seen because the kernel gave no state for their thread: no memory, or busy on that CPU";
    TooDeep = "too_deep", false, "calls nested deeper than 16, which are not seen";
    Abandoned = "abandoned", false, "calls that never returned: the thread died, threw or jumped out of them";
    Unmatched = "unmatched", false, "returns without an entry: the probe was attached, or the process forked, inside the call";
    LifeRingFull = "life_ring_full", false, "process and mapping events that found the ring buffer full";
    CutOff = "cut_off", false, "calls that were under way when their probe was removed at the end of a burst, and are not counted";
    WaitRingFull = "wait_ring_full", false, "waits of threads whose record found the ring buffer full; the thread's next record stands for them too";
    StackRingFull = "stack_ring_full", false, "stacks that found the ring buffer full: the records that name them have no stack";
    ProbeMissed = "probe_missed", false, "probe hits the kernel skipped because a BPF program was already running there";
    Malformed = "malformed", true, "records that could not be decoded";
    Expired = "expired", true, "stored calls that were deleted to keep the file under its size cap";
    StacksMissed = "stacks_missed", false, "stacks that came faster than their names could be looked up";
    NotWritten = "not_written", true, "calls that could not be written to the file";
    Refused = "refused", false, "annotations that were not taken: malformed, too many, or about a process of another user";
    NotDelivered = "not_delivered", false, "rows that the live view or another receiver beside the file had no room for";
}

/// A count for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; LossReason::ALL.len()]);

impl Losses {
    pub fn add(&mut self, reason: LossReason, count: u64) {
        self.0[reason as usize] += count;
    }

    pub fn set(&mut self, reason: LossReason, count: u64) {
        self.0[reason as usize] = count;
    }

    pub fn get(&self, reason: LossReason) -> u64 {
        self.0[reason as usize]
    }

    /// Reasons with a count above zero.
    pub fn iter(&self) -> impl Iterator<Item = (LossReason, u64)> + '_ {
        LossReason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, count)| count > 0)
    }

    /// Finished calls that were seen and have no row.
    pub fn calls(&self) -> u64 {
        self.iter().filter(|(reason, _)| reason.is_call()).map(|(_, count)| count).sum()
    }

    pub fn merge(&mut self, other: &Self) {
        for (reason, count) in other.iter() {
            self.add(reason, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reasons_about_finished_calls_count_as_calls() {
        let mut losses = Losses::default();
        losses.add(LossReason::RingFull, 3);
        losses.add(LossReason::Abandoned, 5);
        assert_eq!(losses.calls(), 3);
        assert_eq!(losses.iter().count(), 2);
    }
}
