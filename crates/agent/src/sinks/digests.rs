//! What each process that feeds a GPU did in a second, for the cluster, as a sink.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use anyhow::Result;
use gpuwhy_fleet::{Digest, Outbox, Rhythm, STATES, Worker};
use gpuwhy_model::{Call, Forgotten, Meaning, Name, ProcessId, Row, ThreadId, ThreadTimes};
use hashbrown::HashMap;

use super::collectives::Collectives;
use super::directory::Directory;
use super::{Opening, Request, Sink};
use crate::clock::Reading;

const SECOND_NS: u64 = 1_000_000_000;
/// A communicator that a process has not used for so long may be gone.
const USED_WITHIN_NS: u64 = 60 * SECOND_NS;

struct Digests {
    outbox: Outbox,
    heard: Heard,
}

#[derive(Default)]
struct Heard {
    directory: Directory,
    collectives: Collectives,
    processes: HashMap<ProcessId, Doing>,
    rhythms: HashMap<ThreadId, Rhythm>,
    lost: u64,
    told_ns: u64,
    /// What kinds of GPUs the host has, in the order of their numbers.
    gpus: Vec<String>,
}

/// What a process does in this second.
#[derive(Default)]
struct Doing {
    labels: BTreeMap<String, String>,
    device: Option<u16>,
    feeds_gpu: bool,
    /// When a wait for the GPU returned after which it has got no more work.
    idle_since_ns: Option<u64>,
    idle_ns: u64,
    busy_ns: u64,
    wall_ns: u64,
    spent_ns: [u64; STATES],
}

pub fn open(opening: &mut Opening<'_>) -> Result<Option<Box<dyn Sink>>> {
    let Some(outbox) = opening.options.digests.clone() else { return Ok(None) };
    let heard = Heard { gpus: opening.session.gpus.iter().map(|line| model(line)).collect(), ..Heard::default() };
    Ok(Some(Box::new(Digests { outbox, heard })))
}

impl Sink for Digests {
    fn name(&self) -> &'static str {
        "the digests"
    }

    fn wants(&self) -> fn(&Row) -> bool {
        |row| {
            matches!(
                row,
                Row::Name(_)
                    | Row::Calls(_)
                    | Row::CollectiveCaptures(_)
                    | Row::CollectiveReplays(_)
                    | Row::CollectiveWaits(_)
                    | Row::ThreadTimes(_)
                    | Row::Losses(_)
                    | Row::Second(_)
            )
        }
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        for row in rows {
            self.heard.row(row);
            if let Row::Second(_) = row {
                self.outbox.put(self.heard.second(Reading::now().unix_ns));
            }
        }
        Ok(Request::Nothing)
    }
}

impl Heard {
    fn row(&mut self, row: &Row) {
        match row {
            Row::Name(name) => self.name(name),
            Row::Calls(calls) => calls.iter().for_each(|call| self.call(call)),
            Row::CollectiveCaptures(all) => all.iter().for_each(|one| self.collectives.capture(one)),
            Row::CollectiveReplays(all) => all.iter().for_each(|one| self.collectives.replay(one)),
            Row::CollectiveWaits(all) => all.iter().for_each(|one| self.collectives.wait(one)),
            Row::ThreadTimes(times) => times.iter().for_each(|times| self.times(times)),
            Row::Losses(losses) => self.lost = losses.iter().map(|(_, count)| count).sum(),
            _ => {}
        }
    }

    fn name(&mut self, name: &Name) {
        match name {
            Name::Label { process, label } => {
                let doing = self.processes.entry(*process).or_default();
                doing.labels.insert(label.key.clone(), label.value.clone());
            }
            Name::Forgotten(Forgotten::Process(process)) => drop(self.processes.remove(process)),
            Name::Forgotten(Forgotten::Thread(thread)) => drop(self.rhythms.remove(thread)),
            _ => {}
        }
        if let &Name::Forgotten(forgotten) = name {
            self.collectives.forget(forgotten);
        }
        self.directory.learn(name);
    }

    fn call(&mut self, call: &Call) {
        let Some(op) = self.directory.op(call.op) else { return };
        let Some(process) = self.directory.process_of(call.thread) else { return };
        let meaning = op.meaning;
        if call.own.is_some() || meaning.is_graph_launch() {
            self.collectives.call(process, call, &meaning);
        }
        if is_always_seen(call, &meaning) {
            self.rhythms.entry(call.thread).or_default().mark(kind(call), call.start_ns);
        }
        let doing = self.processes.entry(process).or_default();
        doing.device = call.device.or(doing.device);
        if meaning.is_launch {
            doing.feeds_gpu = true;
            self.directory.launched(call.thread);
        }
        doing.ledger(call, &meaning);
    }

    fn times(&mut self, times: &ThreadTimes) {
        if !self.directory.has_launched(times.thread) {
            return;
        }
        let Some(process) = self.directory.process_of(times.thread) else { return };
        let doing = self.processes.entry(process).or_default();
        let blocked_ns: u64 = times.blocked_ns.iter().sum();
        let running_ns = times.wall_ns.saturating_sub(times.runqueue_ns).saturating_sub(blocked_ns);
        let spent = [running_ns, times.runqueue_ns].into_iter().chain(times.blocked_ns);
        doing.spent_ns.iter_mut().zip(spent).for_each(|(sum, ns)| *sum += ns);
        doing.wall_ns += times.wall_ns;
    }

    /// What there was since the last time.
    fn second(&mut self, at_ns: u64) -> Vec<Digest> {
        let since_ns = std::mem::replace(&mut self.told_ns, at_ns);
        let span_ns = if since_ns == 0 { SECOND_NS } else { at_ns.saturating_sub(since_ns).max(1) };
        // A process has the rhythm of the thread that waits and asks most often.
        let mut busiest: HashMap<ProcessId, &mut Rhythm> = HashMap::new();
        for (thread, rhythm) in &mut self.rhythms {
            let Some(process) = self.directory.process_of(*thread) else { continue };
            let new = rhythm.new_marks();
            match busiest.get(&process) {
                Some(other) if other.new_marks() >= new => {}
                _ => drop(busiest.insert(process, rhythm)),
            }
        }
        let mut digests = Vec::new();
        for (process, doing) in &mut self.processes {
            let (steps, step_ns) = busiest.get_mut(process).map_or((0, None), |rhythm| rhythm.steps());
            let parts = self.collectives.parts(*process, at_ns.saturating_sub(USED_WITHIN_NS));
            let (gpu_idle, gpu_busy, thread_time) = doing.shares(at_ns, span_ns);
            let Some((pid, comm)) = self.directory.process(*process).filter(|_| doing.feeds_gpu || !parts.is_empty())
            else {
                continue;
            };
            let (comm, labels) = (comm.to_owned(), doing.labels.clone());
            let device = doing.device;
            // Hosts have GPUs of one kind, unless they have not.
            let number = device.or((self.gpus.len() == 1).then_some(0));
            let gpu = number.and_then(|number| self.gpus.get(usize::from(number)).cloned());
            let worker = Worker { pid, comm, device, gpu, labels };
            let lost = self.lost;
            digests.push(Digest { at_ns, worker, steps, step_ns, gpu_idle, gpu_busy, thread_time, parts, lost });
        }
        self.collectives.pass();
        digests
    }
}

/// What kind of GPU it is, by its line in a session: `NVIDIA H200 GPU-1234 0000:0a:00.0`.
fn model(line: &str) -> String {
    let (rest, _bus) = line.rsplit_once(' ').unwrap_or((line, ""));
    rest.rsplit_once(' ').map_or(rest, |(model, _uuid)| model).to_owned()
}

impl Doing {
    /// From a wait that returned to the next work the GPU is idle, and while a wait lasts it is busy.
    fn ledger(&mut self, call: &Call, meaning: &Meaning) {
        if meaning.gives_work() || meaning.awaits_work() {
            let since_ns = self.idle_since_ns.take();
            self.idle_ns += since_ns.map_or(0, |since_ns| call.start_ns.saturating_sub(since_ns));
        }
        if meaning.awaits_work() {
            self.busy_ns += call.duration_ns;
            self.idle_since_ns = Some(call.span().to_ns);
        }
    }

    fn shares(&mut self, at_ns: u64, span_ns: u64) -> (f64, f64, [f64; STATES]) {
        if let Some(since_ns) = self.idle_since_ns.as_mut() {
            self.idle_ns += at_ns.saturating_sub(*since_ns);
            *since_ns = at_ns.max(*since_ns);
        }
        let of = |ns: &mut u64, all_ns: u64| (std::mem::take(ns) as f64 / all_ns.max(1) as f64).min(1.0);
        let wall_ns = std::mem::take(&mut self.wall_ns);
        let idle = of(&mut self.idle_ns, span_ns);
        // A wait that began in an earlier second is told where it ends.
        let busy = of(&mut self.busy_ns, span_ns).min(1.0 - idle);
        (idle, busy, self.spent_ns.each_mut().map(|ns| of(ns, wall_ns)))
    }
}

/// Whether all calls of its function have a record, however often they come.
fn is_always_seen(call: &Call, meaning: &Meaning) -> bool {
    meaning.awaits_work() || meaning.is_graph_launch() || call.own.is_some()
}

/// Calls are of one kind if they are about as much.
fn kind(call: &Call) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((call.op.0, call.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_apis::rows;
    use gpuwhy_model::{Label, Layer, OpId, Process, WaitReason};

    const MS: u64 = 1_000_000;
    const NAMES: &[&str] = &["cuLaunchKernel", "cuStreamSynchronize"];

    struct Scene {
        heard: Heard,
    }

    impl Scene {
        fn new() -> Self {
            let gpus = ["A", "B", "C", "NVIDIA H200"].map(str::to_owned).to_vec();
            let mut heard = Heard { gpus, ..Heard::default() };
            for (id, name) in (0..).zip(NAMES) {
                let meaning = rows().find(|row| row.api.name == *name).unwrap().meaning();
                let op = Name::Op { id: OpId(id), name, layer: Layer::Driver, meaning, runtime_name: None };
                heard.row(&Row::Name(op));
            }
            let process = Process { pid: 41, comm: "python".to_owned(), ..Process::default() };
            heard.row(&Row::Name(Name::Process { id: ProcessId(1), process }));
            let comm = "python".to_owned();
            heard.row(&Row::Name(Name::Thread { id: ThreadId(1), process: ProcessId(1), tid: 41, comm }));
            let label = Label { key: "job".to_owned(), value: "llm".to_owned() };
            heard.row(&Row::Name(Name::Label { process: ProcessId(1), label }));
            Self { heard }
        }

        fn call(&mut self, name: &str, start_ns: u64, duration_ns: u64) {
            let op = OpId(NAMES.iter().position(|one| *one == name).unwrap() as u32);
            let call = Call { device: Some(3), ..Call::new(ThreadId(1), op, start_ns, duration_ns) };
            self.heard.row(&Row::Calls(vec![call]));
        }

        /// Steps of 40 ms: 25 ms of host work after each wait of 10 ms.
        fn second(&mut self, number: u64) -> Vec<Digest> {
            for step in 0..25 {
                let at_ns = number * SECOND_NS + step * 40 * MS;
                self.call("cuLaunchKernel", at_ns, 10_000);
                self.call("cuStreamSynchronize", at_ns + 5 * MS, 10 * MS);
            }
            let mut times = ThreadTimes::new(0, ThreadId(1), SECOND_NS);
            times.runqueue_ns = SECOND_NS / 4;
            times.blocked_ns[0] = SECOND_NS / 2;
            self.heard.row(&Row::ThreadTimes(vec![times]));
            self.heard.second((number + 1) * SECOND_NS)
        }
    }

    #[test]
    fn a_second_has_the_steps_the_ledger_and_the_time_of_threads_that_feed_the_gpu() {
        let mut scene = Scene::new();
        scene.second(1);
        let digests = scene.second(2);
        let [one] = &digests[..] else { panic!("{digests:?}") };
        assert_eq!((one.worker.pid, one.worker.device, one.worker.labels["job"].as_str()), (41, Some(3), "llm"));
        assert_eq!((one.steps, one.step_ns), (25, Some(40 * MS)));
        assert_eq!(
            (one.worker.gpu.as_deref(), model("NVIDIA H200 GPU-1 0000:0a:00.0").as_str()),
            (Some("NVIDIA H200"), "NVIDIA H200")
        );
        assert!((one.gpu_idle - 0.625).abs() < 0.01 && (one.gpu_busy - 0.25).abs() < 0.01, "{one:?}");
        assert_eq!(one.thread_time[..3], [0.25, 0.25, 0.5], "{:?}", WaitReason::ALL[0]);
    }

    #[test]
    fn a_gpu_that_gets_no_more_work_is_idle_in_each_second_until_it_does() {
        let mut scene = Scene::new();
        scene.second(1);
        let later: Vec<f64> = (3..6).map(|second| scene.heard.second(second * SECOND_NS)[0].gpu_idle).collect();
        assert_eq!(later, [1.0; 3]);
    }

    #[test]
    fn who_feeds_no_gpu_has_no_digest() {
        let mut scene = Scene::new();
        assert!(scene.heard.second(SECOND_NS).is_empty());
        scene.call("cuStreamSynchronize", SECOND_NS, MS);
        assert!(scene.heard.second(2 * SECOND_NS).is_empty());
        scene.second(2);
        scene.heard.row(&Row::Name(Name::Forgotten(Forgotten::Process(ProcessId(1)))));
        assert!(scene.heard.second(4 * SECOND_NS).is_empty());
    }
}
