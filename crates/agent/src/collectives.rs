//! When operations of several devices were done: at the end of the first wait that covers them.
//!
//! An operation is asked for on a stream. A wait for that stream covers it, and so does a wait for an event or another
//! stream that was made to follow it. One that is recorded in a graph is asked for by launches of that.

mod graphs;

use std::collections::BTreeSet;

use gpuwhy_model::{
    Awaited, Call, CallClass, CollectiveCapture, CollectiveReplay, CollectiveWait, DeviceAction, Meaning,
};
use hashbrown::HashMap;

use graphs::Graphs;

/// So many operations that nobody has waited for yet are followed on each stream.
const MOST_PENDING: usize = 256;

/// So many streams and events of a process are followed; then all are forgotten.
const MOST_FOLLOWED: usize = 4096;

/// The operations of all processes that have asked for any, or capture graphs.
#[derive(Default)]
pub struct Collectives {
    processes: HashMap<u32, Process>,
}

#[derive(Default)]
struct Process {
    pending: Pending,
    graphs: Graphs,
}

/// What calls told of operations.
#[derive(Default)]
pub struct Told {
    pub captures: Vec<CollectiveCapture>,
    pub replays: Vec<CollectiveReplay>,
    pub waits: Vec<CollectiveWait>,
}

impl Collectives {
    /// Looks at a call, in the order of time, and says what it tells of operations: that it is recorded in a graph, that it
    /// launches one, and which are done with it.
    pub fn see(&mut self, pid: u32, call: &Call, meaning: &Meaning, told: &mut Told) {
        if call.ret_code != 0 {
            return;
        }
        if let Some(step) = meaning.graph_step {
            return self.processes.entry(pid).or_default().graphs.step(call, step);
        }
        if meaning.class == CallClass::Collective {
            let Process { pending, graphs } = self.processes.entry(pid).or_default();
            match (graphs.record(call), call.stream) {
                (Some(capture), _) => told.captures.push(capture),
                (None, Some(stream)) => pending.ask(stream, call.start_ns),
                (None, None) => {}
            }
            return;
        }
        let Some(Process { pending, graphs }) = self.processes.get_mut(&pid) else { return };
        match call.device_action(meaning) {
            Some(DeviceAction::Mark { event, stream }) => pending.follow(event, stream),
            Some(DeviceAction::Wait(awaited)) => told.waits.extend(pending.wait(call, awaited)),
            Some(DeviceAction::Submit(stream)) if meaning.is_graph_launch() => {
                let replays = graphs.launch(call);
                if !replays.is_empty() {
                    pending.ask(stream, call.start_ns);
                }
                told.replays.extend(replays);
            }
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
    use gpuwhy_model::{OpId, OwnValues, ThreadId};

    struct Scene {
        collectives: Collectives,
        at_ns: u64,
    }

    impl Scene {
        fn new() -> Self {
            Self { collectives: Collectives::default(), at_ns: 1000 }
        }

        /// A call of 10 us, and what was done with it: starts and waits.
        fn calls(&mut self, name: &str, stream: Option<u64>, handle: Option<u64>) -> Vec<(u64, u64)> {
            self.at_ns += 1000;
            let call = Call { stream, handle, ..Call::new(ThreadId(1), OpId(0), self.at_ns, 10) };
            let waits = self.sees(name, call).waits;
            assert!(waits.iter().all(|one| one.done_ns == self.at_ns + 10), "{waits:?}");
            waits.iter().map(|one| (one.start_ns, one.wait_ns)).collect()
        }

        fn sees(&mut self, name: &str, call: Call) -> Told {
            let meaning = rows().find(|row| row.api.name == name).unwrap().meaning();
            let mut told = Told::default();
            self.collectives.see(7, &call, &meaning, &mut told);
            told
        }
    }

    #[test]
    fn a_wait_for_the_stream_covers_what_was_asked_for_on_it_and_the_last_of_it_has_the_wait() {
        let mut scene = Scene::new();
        scene.calls("ncclAllReduce", Some(5), None);
        scene.calls("ncclAllGather", Some(5), None);
        scene.calls("ncclAllReduce", Some(6), None);
        assert_eq!(scene.calls("cuStreamSynchronize", Some(5), None), [(2000, 0), (3000, 10)]);
        assert_eq!(scene.calls("cuStreamSynchronize", Some(5), None), []);
        assert_eq!(scene.calls("cuCtxSynchronize", None, None), [(4000, 10)]);
    }

    #[test]
    fn a_wait_for_what_was_made_to_follow_covers_it() {
        let mut scene = Scene::new();
        scene.calls("ncclAllReduce", Some(5), None);
        scene.calls("cuEventRecord", Some(5), Some(70));
        scene.calls("cuStreamWaitEvent", Some(0), Some(70));
        assert_eq!(scene.calls("cuStreamSynchronize", Some(9), None), []);
        assert_eq!(scene.calls("cuStreamSynchronize", Some(0), None), [(2000, 10)]);
        assert_eq!(scene.calls("cuEventSynchronize", None, Some(70)), []);
    }

    /// An operation with this place in the order of communicator 9.
    fn asks(at_ns: u64, seq: u64) -> Call {
        let row = rows().find(|row| row.api.name == "ncclAllReduce").unwrap();
        let of = row.library.own.unwrap();
        let known = [("comm_id_hash", 9), ("rank", 1), ("nranks", 2), ("seq", seq)];
        let value = |name: &str| known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let values = of.operands.iter().map(|operand| value(operand.column.name)).collect();
        let own = Some(Box::new(OwnValues { of, values }));
        Call { handle: Some(77), bytes: Some(100), stream: Some(5), own, ..at(at_ns) }
    }

    fn at(at_ns: u64) -> Call {
        Call::new(ThreadId(1), OpId(0), at_ns, 10)
    }

    /// Captures a graph with so many operations, makes it ready, and forgets it.
    fn captures(scene: &mut Scene, at_ns: u64, graph: u64, executable: u64, operations: u64) {
        scene.sees("cuStreamBeginCapture", Call { stream: Some(5), ..at(at_ns) });
        for seq in 0..operations {
            let told = scene.sees("ncclAllReduce", asks(at_ns + 1 + seq, at_ns + seq));
            assert_eq!(told.captures, [CollectiveCapture { start_ns: at_ns + 1 + seq, began_ns: at_ns }]);
        }
        scene.sees("cuStreamEndCapture", Call { stream: Some(5), handle: Some(graph), ..at(at_ns + 50) });
        let ready = Call { handle: Some(executable), address: Some(graph), ..at(at_ns + 60) };
        scene.sees("cuGraphInstantiateWithFlags", ready);
    }

    fn launches(scene: &mut Scene, at_ns: u64, executable: u64) -> Vec<(u64, u64, u64, u64)> {
        let call = Call { handle: Some(executable), stream: Some(5), ..at(at_ns) };
        let replays = scene.sees("cuGraphLaunch", call).replays;
        replays.iter().map(|one| (one.seq, one.replay, one.operations, one.bytes)).collect()
    }

    #[test]
    fn what_a_graph_has_recorded_is_asked_for_by_each_of_its_launches_and_covered_by_the_wait_after_it() {
        let mut scene = Scene::new();
        captures(&mut scene, 100, 1, 11, 3);
        // The handle of a graph that was destroyed is used again.
        captures(&mut scene, 200, 1, 12, 1);
        assert_eq!(launches(&mut scene, 300, 11), [(102, 0, 3, 300)]);
        assert_eq!(launches(&mut scene, 400, 12), [(200, 0, 1, 100)]);
        assert_eq!(launches(&mut scene, 500, 11), [(102, 1, 3, 300)]);
        assert_eq!(launches(&mut scene, 600, 13), []);
        assert_eq!(scene.calls("cuStreamSynchronize", Some(5), None), [(300, 0), (400, 0), (500, 10)]);
    }

    #[test]
    fn a_launch_that_two_layers_tell_of_is_one() {
        let mut scene = Scene::new();
        captures(&mut scene, 100, 1, 11, 1);
        let launch = Call { handle: Some(11), stream: Some(5), ..at(300) };
        assert_eq!(scene.sees("cudaGraphLaunch", launch.clone()).replays.len(), 1);
        let inside = Call { start_ns: 301, parent_start_ns: Some(300), ..launch };
        assert_eq!(scene.sees("cuGraphLaunch", inside).replays, []);
    }

    #[test]
    fn an_executable_graph_that_is_made_anew_without_operations_asks_for_none() {
        let mut scene = Scene::new();
        captures(&mut scene, 100, 1, 11, 1);
        captures(&mut scene, 200, 1, 11, 0);
        assert_eq!(launches(&mut scene, 300, 11), []);
        let told = scene.sees("ncclAllReduce", asks(400, 7));
        assert!(told.captures.is_empty());
    }

    #[test]
    fn a_program_that_never_waits_takes_little_memory() {
        let mut scene = Scene::new();
        for stream in 0..3 * MOST_FOLLOWED as u64 {
            scene.calls("ncclAllReduce", Some(stream), None);
            scene.calls("cuEventRecord", Some(stream), Some(stream));
            scene.calls("ncclAllReduce", Some(1), None);
        }
        let pending = &scene.collectives.processes[&7].pending;
        assert!(pending.streams.len() + pending.events.len() <= MOST_FOLLOWED + 3);
        assert!(pending.streams.values().all(|operations| operations.len() <= MOST_PENDING));
    }
}
