//! When operations of several devices were done: at the end of the first wait that covers them.
//!
//! An operation is asked for on a stream. A wait for that stream covers it, and so does a wait for an event or another
//! stream that was made to follow it.

use std::collections::BTreeSet;

use gpuwhy_model::{Awaited, Call, CallClass, CollectiveWait, DeviceAction, Meaning};
use hashbrown::HashMap;

/// So many operations that nobody has waited for yet are followed on each stream.
const MOST_PENDING: usize = 256;

/// So many streams and events of a process are followed; then all are forgotten.
const MOST_FOLLOWED: usize = 4096;

/// The operations of all processes that have asked for any.
#[derive(Default)]
pub struct Collectives {
    processes: HashMap<u32, Pending>,
}

impl Collectives {
    /// Looks at a call, in the order of time, and says which operations are done with it.
    pub fn see(&mut self, pid: u32, call: &Call, meaning: &Meaning, done: &mut Vec<CollectiveWait>) {
        if call.ret_code != 0 {
            return;
        }
        if let Some(stream) = call.stream.filter(|_| meaning.class == CallClass::Collective) {
            self.processes.entry(pid).or_default().ask(stream, call.start_ns);
            return;
        }
        let Some(pending) = self.processes.get_mut(&pid) else { return };
        match call.device_action(meaning) {
            Some(DeviceAction::Mark { event, stream }) => pending.follow(event, stream),
            Some(DeviceAction::Wait(awaited)) => done.extend(pending.wait(call, awaited)),
            Some(DeviceAction::Submit(_)) | None => {}
        }
    }

    pub fn process_gone(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

/// The operations of a process that nobody has waited for yet, by the starts of their calls.
#[derive(Default)]
struct Pending {
    streams: HashMap<u64, BTreeSet<u64>>,
    events: HashMap<u64, BTreeSet<u64>>,
}

impl Pending {
    fn ask(&mut self, stream: u64, start_ns: u64) {
        if self.streams.len() + self.events.len() > MOST_FOLLOWED {
            *self = Self::default();
        }
        let operations = self.streams.entry(stream).or_default();
        operations.insert(start_ns);
        if operations.len() > MOST_PENDING {
            operations.pop_first();
        }
    }

    /// What is done when the one is done is done when the other is.
    fn follow(&mut self, event: u64, stream: u64) {
        let marked = self.events.entry(event).or_default();
        let operations = self.streams.entry(stream).or_default();
        operations.append(marked);
        marked.clone_from(operations);
    }

    /// What was asked for before a wait that covers it. The last of it has the wait.
    fn wait(&mut self, call: &Call, awaited: Awaited) -> Vec<CollectiveWait> {
        let operations = match awaited {
            Awaited::Stream(stream) => self.streams.get(&stream).into_iter().flatten().copied().collect(),
            Awaited::Event(event) => self.events.get(&event).into_iter().flatten().copied().collect(),
            Awaited::All => self.streams.values().flatten().copied().collect::<BTreeSet<u64>>(),
        };
        let covered: BTreeSet<u64> = operations.into_iter().filter(|&start_ns| start_ns < call.start_ns).collect();
        for operations in self.streams.values_mut().chain(self.events.values_mut()) {
            operations.retain(|start_ns| !covered.contains(start_ns));
        }
        let last = covered.last().copied();
        let done_ns = call.start_ns.saturating_add(call.duration_ns);
        let wait_ns = |start_ns| if Some(start_ns) == last { call.duration_ns } else { 0 };
        covered.iter().map(|&start_ns| CollectiveWait { start_ns, done_ns, wait_ns: wait_ns(start_ns) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_apis::rows;
    use gpuwhy_model::{OpId, ThreadId};

    struct Process {
        collectives: Collectives,
        at_ns: u64,
    }

    impl Process {
        fn new() -> Self {
            Self { collectives: Collectives::default(), at_ns: 1000 }
        }

        /// A call of 10 us, and what was done with it: starts and waits.
        fn calls(&mut self, name: &str, stream: Option<u64>, handle: Option<u64>) -> Vec<(u64, u64)> {
            let meaning = rows().find(|row| row.api.name == name).unwrap().meaning();
            self.at_ns += 1000;
            let call = Call { stream, handle, ..Call::new(ThreadId(1), OpId(0), self.at_ns, 10) };
            let mut done = Vec::new();
            self.collectives.see(7, &call, &meaning, &mut done);
            assert!(done.iter().all(|one| one.done_ns == self.at_ns + 10), "{done:?}");
            done.iter().map(|one| (one.start_ns, one.wait_ns)).collect()
        }
    }

    #[test]
    fn a_wait_for_the_stream_covers_what_was_asked_for_on_it_and_the_last_of_it_has_the_wait() {
        let mut process = Process::new();
        process.calls("ncclAllReduce", Some(5), None);
        process.calls("ncclAllGather", Some(5), None);
        process.calls("ncclAllReduce", Some(6), None);
        assert_eq!(process.calls("cuStreamSynchronize", Some(5), None), [(2000, 0), (3000, 10)]);
        assert_eq!(process.calls("cuStreamSynchronize", Some(5), None), []);
        assert_eq!(process.calls("cuCtxSynchronize", None, None), [(4000, 10)]);
    }

    #[test]
    fn a_wait_for_what_was_made_to_follow_covers_it() {
        let mut process = Process::new();
        process.calls("ncclAllReduce", Some(5), None);
        process.calls("cuEventRecord", Some(5), Some(70));
        process.calls("cuStreamWaitEvent", Some(0), Some(70));
        assert_eq!(process.calls("cuStreamSynchronize", Some(9), None), []);
        assert_eq!(process.calls("cuStreamSynchronize", Some(0), None), [(2000, 10)]);
        assert_eq!(process.calls("cuEventSynchronize", None, Some(70)), []);
    }

    #[test]
    fn a_program_that_never_waits_takes_little_memory() {
        let mut process = Process::new();
        for stream in 0..3 * MOST_FOLLOWED as u64 {
            process.calls("ncclAllReduce", Some(stream), None);
            process.calls("cuEventRecord", Some(stream), Some(stream));
            process.calls("ncclAllReduce", Some(1), None);
        }
        let pending = &process.collectives.processes[&7];
        assert!(pending.streams.len() + pending.events.len() <= MOST_FOLLOWED + 3);
        assert!(pending.streams.values().all(|operations| operations.len() <= MOST_PENDING));
    }
}
