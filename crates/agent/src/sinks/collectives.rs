//! Operations of several devices, summed up by rank: for those who scrape, and for digests.

mod splits;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuwhy_fleet::Part;
use gpuwhy_metrics::{Registry, families};
use gpuwhy_model::{
    Call, CallClass, CollectiveCapture, CollectiveReplay, CollectiveWait, Forgotten, Meaning, OwnValues, ProcessId,
};
use hashbrown::HashMap;

use super::directory::Directory;
use splits::Splits;

/// So many operations are remembered until somebody waits for them; then the oldest are forgotten.
const MOST_AWAITED: usize = 1 << 16;
/// So many orders are followed; then all are forgotten.
const MOST_ORDERS: usize = 1 << 12;

/// What operations are called that a graph asks for when it is launched.
const GRAPH: &str = "GRAPH";

/// What ranks have asked and waited for in this second.
#[derive(Default)]
pub struct Collectives {
    asked: HashMap<(Member, &'static str), Asked>,
    waited_ns: HashMap<Member, u64>,
    /// What nobody was seen to wait for yet, by start and communicator.
    awaited: BTreeMap<(u64, Option<u64>), Operation>,
    /// Who launched a graph, by start.
    launches: HashMap<u64, ProcessId>,
    splits: Splits,
    /// How far ranks are in the orders of operations.
    progress: HashMap<(Member, u64), Progress>,
}

/// A process as one of the ranks of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Member {
    process: ProcessId,
    communicator: Option<u64>,
    /// The communicator, as the process names it.
    handle: Option<u64>,
    rank: Option<u32>,
}

#[derive(Default)]
struct Asked {
    operations: u64,
    bytes: u64,
}

struct Operation {
    member: Member,
    op: &'static str,
    bytes: u64,
    place: Option<Place>,
}

/// The place of an operation in an order that all ranks have in common.
#[derive(Clone, Copy)]
struct Place {
    order: u64,
    sequence: u64,
    ranks: Option<u32>,
}

#[derive(Default)]
struct Progress {
    ranks: Option<u32>,
    operations: u64,
    waited_ns: u64,
    done_ns: u64,
}

impl Collectives {
    pub fn call(&mut self, process: ProcessId, call: &Call, meaning: &Meaning) {
        if call.ret_code != 0 {
            return;
        }
        if meaning.is_graph_launch() {
            self.launches.insert(call.start_ns, process);
        }
        let Some(own) = &call.own else { return };
        self.splits.see(process, call.handle, own);
        if meaning.class == CallClass::Collective {
            let communicator = own.value("comm_id_hash");
            let member = Member { process, communicator, handle: call.handle, rank: number(own, "rank") };
            let (op, bytes) = (own.word("op").unwrap_or_default(), call.bytes.unwrap_or(0));
            let ranks = number(own, "nranks");
            let place = communicator.zip(own.value("seq"));
            let place = place.map(|(order, sequence)| Place { order, sequence, ranks });
            self.ask(call.start_ns, Operation { member, op, bytes, place }, 1);
        }
    }

    fn ask(&mut self, start_ns: u64, operation: Operation, operations: u64) {
        let asked = self.asked.entry((operation.member, operation.op)).or_default();
        asked.operations += operations;
        asked.bytes = asked.bytes.saturating_add(operation.bytes);
        self.awaited.insert((start_ns, operation.member.communicator), operation);
        if self.awaited.len() > MOST_AWAITED {
            self.awaited.pop_first();
        }
    }

    /// What is recorded in a graph is not asked for by that.
    pub fn capture(&mut self, capture: &CollectiveCapture) {
        for Operation { member, op, bytes, .. } in self.take(capture.start_ns) {
            if let Some(asked) = self.asked.get_mut(&(member, op)) {
                asked.operations = asked.operations.saturating_sub(1);
                asked.bytes = asked.bytes.saturating_sub(bytes);
            }
        }
    }

    /// A launch comes before what it asks for, in the same second.
    pub fn replay(&mut self, replay: &CollectiveReplay) {
        let Some(&process) = self.launches.get(&replay.start_ns) else { return };
        let (communicator, handle) = (Some(replay.comm_id_hash), Some(replay.handle));
        let member = Member { process, communicator, handle, rank: replay.rank };
        let place = Place { order: replay.order(), sequence: replay.replay, ranks: replay.nranks };
        let operation = Operation { member, op: GRAPH, bytes: replay.bytes, place: Some(place) };
        self.ask(replay.start_ns, operation, replay.operations);
    }

    pub fn wait(&mut self, wait: &CollectiveWait) {
        for Operation { member, place, .. } in self.take(wait.start_ns) {
            *self.waited_ns.entry(member).or_default() += wait.wait_ns;
            if let Some(place) = place {
                self.advance(member, place, wait);
            }
        }
    }

    fn advance(&mut self, member: Member, place: Place, wait: &CollectiveWait) {
        if self.progress.len() >= MOST_ORDERS {
            self.progress.clear();
        }
        let progress = self.progress.entry((member, place.order)).or_default();
        progress.ranks = place.ranks;
        progress.operations = progress.operations.max(place.sequence + 1);
        progress.waited_ns = progress.waited_ns.saturating_add(wait.wait_ns);
        progress.done_ns = progress.done_ns.max(wait.done_ns);
    }

    /// The parts of a process in communicators whose ranks are known and that it has used since then, the last ones first.
    pub fn parts(&self, process: ProcessId, since_ns: u64) -> Vec<Part> {
        let is_own = |((member, _), progress): &(&(Member, u64), &Progress)| {
            member.process == process && progress.done_ns >= since_ns
        };
        let part = |((member, order), progress): (&(Member, u64), &Progress)| {
            let split = member.handle.zip(member.communicator);
            let split = split.and_then(|(handle, communicator)| self.splits.rank(process, handle, communicator));
            let (rank, ranks) = member.rank.zip(progress.ranks).or(split)?;
            let &Progress { operations, waited_ns, done_ns, .. } = progress;
            Some(Part { communicator: *order, rank, ranks, operations, waited_ns, done_ns })
        };
        let mut parts: Vec<Part> = self.progress.iter().filter(is_own).filter_map(part).collect();
        parts.sort_unstable_by_key(|part| (Reverse(part.done_ns), part.communicator));
        parts
    }

    /// A second is over of which nobody is told.
    pub fn pass(&mut self) {
        self.launches.clear();
        self.asked.clear();
        self.waited_ns.clear();
    }

    /// What calls or launches with this start have asked for.
    fn take(&mut self, start_ns: u64) -> Vec<Operation> {
        let all = self.awaited.range((start_ns, None)..=(start_ns, Some(u64::MAX))).map(|(&key, _)| key);
        let all: Vec<(u64, Option<u64>)> = all.collect();
        all.iter().filter_map(|key| self.awaited.remove(key)).collect()
    }

    /// Tells what there was since the last time. Ranks of communicators that were split are known by then.
    pub fn tell(&mut self, directory: &Directory, registry: &mut Registry) {
        self.launches.clear();
        for ((member, op), asked) in self.asked.drain().filter(|(_, asked)| asked.operations > 0) {
            let Some([pid, comm, communicator, rank]) = labels(&self.splits, directory, member) else { continue };
            let labels: [&str; 5] = [&pid, &comm, &communicator, &rank, op];
            registry.add(&families::COLLECTIVES, &labels, asked.operations as f64);
            registry.add(&families::COLLECTIVE_BYTES, &labels, asked.bytes as f64);
        }
        for (member, ns) in self.waited_ns.drain() {
            let Some(labels) = labels(&self.splits, directory, member) else { continue };
            registry.add(&families::COLLECTIVE_WAIT, &labels.each_ref().map(String::as_str), ns as f64 / 1e9);
        }
    }

    pub fn forget(&mut self, forgotten: Forgotten) {
        if let Forgotten::Process(gone) = forgotten {
            self.awaited.retain(|_, operation| operation.member.process != gone);
            self.progress.retain(|(member, _), _| member.process != gone);
            self.splits.forget(gone);
        }
    }
}

fn labels(splits: &Splits, directory: &Directory, member: Member) -> Option<[String; 4]> {
    let (pid, comm) = directory.process(member.process)?;
    let communicator = member.communicator.map_or_else(String::new, |hash| format!("{hash:016x}"));
    let split = || splits.rank(member.process, member.handle?, member.communicator?).map(|(rank, _)| rank);
    let rank = member.rank.or_else(split).map_or_else(String::new, |rank| rank.to_string());
    Some([pid.to_string(), comm.to_owned(), communicator, rank])
}

/// The upper half of a register that holds an `int` may be anything.
fn number(own: &OwnValues, name: &str) -> Option<u32> {
    own.value(name).map(|value| value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_apis::{Row, rows};
    use gpuwhy_metrics::Format;
    use gpuwhy_model::{Name, OpId, Process, ThreadId};

    /// Two ranks: processes 1 and 2.
    struct Scene {
        collectives: Collectives,
        directory: Directory,
        registry: Registry,
    }

    impl Scene {
        fn new() -> Self {
            let mut directory = Directory::default();
            for number in [1, 2] {
                let process = Process { pid: 40 + number, comm: "python".to_owned(), ..Process::default() };
                directory.learn(&Name::Process { id: ProcessId(number), process });
            }
            Self { collectives: Collectives::default(), directory, registry: Registry::default() }
        }

        /// A call into a function with such operands, of a communicator that its process names by 77.
        fn calls(&mut self, process: u32, name: &str, start_ns: u64, operands: &[(&str, u64)]) {
            let row = row(name);
            let of = row.library.own.unwrap();
            let all_reduce = [("op", 0)];
            let known = || operands.iter().chain(&all_reduce);
            let value = |name: &str| known().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let values = of.operands.iter().map(|operand| value(operand.column.name)).collect();
            let own = Some(Box::new(OwnValues { of, values }));
            let call = Call::new(ThreadId(process), OpId(0), start_ns, 10);
            let call = Call { handle: Some(77), bytes: Some(100), own, ..call };
            self.collectives.call(ProcessId(process), &call, &row.meaning());
        }

        fn reduces(&mut self, process: u32, start_ns: u64) {
            let rank = u64::from(process) - 1;
            self.calls(process, "ncclAllReduce", start_ns, &[("comm_id_hash", 9), ("rank", rank), ("nranks", 2)]);
        }

        fn waits(&mut self, start_ns: u64, wait_ns: u64) {
            self.collectives.wait(&CollectiveWait { start_ns, done_ns: start_ns + wait_ns, wait_ns });
        }

        /// The lines that say something of collective operations, without what is the same in all of them.
        fn told(&mut self) -> Vec<String> {
            self.collectives.tell(&self.directory, &mut self.registry);
            let text = Format::Classic.write(&mut self.registry);
            let lines = text.lines().filter_map(|line| line.strip_prefix("gpuwhy_collective_"));
            lines.map(|line| line.replace("comm=\"python\",communicator=", "")).collect()
        }
    }

    fn row(name: &str) -> Row {
        rows().find(|row| row.api.name == name).unwrap()
    }

    #[test]
    fn operations_bytes_and_waits_are_told_by_rank() {
        let mut scene = Scene::new();
        scene.reduces(1, 1000);
        scene.reduces(1, 2000);
        scene.reduces(2, 3000);
        // The second covers the first.
        scene.waits(1000, 0);
        scene.waits(2000, 500_000_000);
        // Nobody asked for anything then.
        scene.waits(7000, 500_000_000);
        let wanted = [
            r#"operations_total{pid="41","0000000000000009",rank="0",op="ALL_REDUCE"} 2"#,
            r#"operations_total{pid="42","0000000000000009",rank="1",op="ALL_REDUCE"} 1"#,
            r#"bytes_total{pid="41","0000000000000009",rank="0",op="ALL_REDUCE"} 200"#,
            r#"bytes_total{pid="42","0000000000000009",rank="1",op="ALL_REDUCE"} 100"#,
            r#"wait_seconds_total{pid="41","0000000000000009",rank="0"} 0.5"#,
        ];
        let told = scene.told();
        assert_eq!(told, wanted);
        assert_eq!(scene.told(), wanted, "what was told is not told again");
    }
    #[test]
    fn what_is_recorded_in_a_graph_is_told_with_each_launch_of_it() {
        let mut scene = Scene::new();
        scene.reduces(1, 1000);
        scene.collectives.capture(&CollectiveCapture { start_ns: 1000, began_ns: 900 });
        let launch = |start_ns| Call::new(ThreadId(1), OpId(0), start_ns, 10);
        let meaning = row("cuGraphLaunch").meaning();
        for start_ns in [2000, 3000] {
            scene.collectives.call(ProcessId(1), &launch(start_ns), &meaning);
            scene.collectives.replay(&CollectiveReplay {
                start_ns,
                comm_id_hash: 9,
                handle: 77,
                rank: Some(0),
                nranks: Some(2),
                seq: 4,
                replay: 0,
                operations: 3,
                bytes: 300,
                began_ns: 900,
            });
        }
        scene.waits(3000, 250_000_000);
        let wanted = [
            r#"operations_total{pid="41","0000000000000009",rank="0",op="GRAPH"} 6"#,
            r#"bytes_total{pid="41","0000000000000009",rank="0",op="GRAPH"} 600"#,
            r#"wait_seconds_total{pid="41","0000000000000009",rank="0"} 0.25"#,
        ];
        assert_eq!(scene.told(), wanted);
    }

    #[test]
    fn how_far_a_rank_is_and_how_long_it_waited_for_that_is_its_part() {
        let mut scene = Scene::new();
        let all_reduce = |scene: &mut Scene, seq| {
            scene.calls(
                1,
                "ncclAllReduce",
                1000 + seq,
                &[("comm_id_hash", 9), ("rank", 0), ("nranks", 2), ("seq", seq)],
            );
        };
        assert_eq!(scene.collectives.parts(ProcessId(1), 0), []);
        (0..3).for_each(|seq| all_reduce(&mut scene, seq));
        scene.waits(1000, 0);
        scene.waits(1001, 70);
        let part = Part { communicator: 9, rank: 0, ranks: 2, operations: 2, waited_ns: 70, done_ns: 1071 };
        assert_eq!(scene.collectives.parts(ProcessId(1), 0), [part]);
        scene.waits(1002, 30);
        let part = Part { operations: 3, waited_ns: 100, ..part };
        assert_eq!(scene.collectives.parts(ProcessId(1), part.done_ns + 1), [], "it does not use it any more");
        assert_eq!(scene.collectives.parts(ProcessId(1), 0), [part]);
        assert_eq!(scene.collectives.parts(ProcessId(2), 0), []);
        scene.collectives.forget(Forgotten::Process(ProcessId(1)));
        assert_eq!(scene.collectives.parts(ProcessId(1), 0), []);
    }

    /// A key of all ranks reverses them.
    #[test]
    fn ranks_of_a_communicator_that_was_split_are_known_once_all_ranks_have_split_it() {
        let mut scene = Scene::new();
        let reduce = |scene: &mut Scene, process, start_ns| {
            scene.calls(process, "ncclAllReduce", start_ns, &[("comm_id_hash", 10)]);
        };
        for (process, rank, key) in [(1, 0, u64::from(u32::MAX)), (2, 1, u64::from((-7i32).cast_unsigned()))] {
            let split =
                [("comm_id_hash", 9), ("rank", rank), ("nranks", 2), ("seq", 0), ("child_id_hash", 10), ("key", key)];
            scene.calls(process, "ncclCommSplit", 1000 + rank, &split);
            reduce(&mut scene, process, 2000 + rank);
        }
        let told = scene.told();
        let is_told = |line: &str| told.iter().any(|told| told == line);
        assert!(is_told(r#"operations_total{pid="41","000000000000000a",rank="1",op="ALL_REDUCE"} 1"#), "{told:?}");
        assert!(is_told(r#"operations_total{pid="42","000000000000000a",rank="0",op="ALL_REDUCE"} 1"#), "{told:?}");
        scene.collectives.forget(Forgotten::Process(ProcessId(1)));
        reduce(&mut scene, 1, 3000);
        assert!(scene.told().iter().any(|line| line.contains(r#"{pid="41","000000000000000a",rank="","#)));
    }

    #[test]
    fn a_failed_call_asks_for_nothing_and_one_of_an_unknown_communicator_says_so() {
        let mut scene = Scene::new();
        let meaning = row("ncclAllReduce").meaning();
        let failed = Call { ret_code: 3, ..Call::new(ThreadId(1), OpId(0), 1000, 10) };
        scene.collectives.call(ProcessId(1), &failed, &meaning);
        assert!(scene.told().is_empty());
        scene.calls(1, "ncclAllReduce", 2000, &[]);
        assert_eq!(scene.told()[0], r#"operations_total{pid="41","",rank="",op="ALL_REDUCE"} 1"#);
    }

    #[test]
    fn a_program_that_makes_ever_new_communicators_and_never_waits_takes_little_memory() {
        let mut scene = Scene::new();
        for number in 0..2 * MOST_AWAITED as u64 {
            scene.calls(1, "ncclAllReduce", number, &[("comm_id_hash", number), ("rank", 0), ("nranks", 2)]);
            if number % 1000 == 0 {
                scene.collectives.tell(&scene.directory, &mut scene.registry);
            }
        }
        let series = scene.told().len();
        assert!(scene.collectives.awaited.len() <= MOST_AWAITED && scene.collectives.asked.is_empty());
        assert!(series <= gpuwhy_metrics::MOST_SERIES, "{series}");
        let sum: f64 = scene
            .registry
            .series_of(&families::COLLECTIVES)
            .map(|(_, series)| match series {
                gpuwhy_metrics::Series::Number(number) => *number,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(sum, 2.0 * MOST_AWAITED as f64);
    }
}
