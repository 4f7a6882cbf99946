//! The slowest calls of a second, as examples of how long calls of a function take.

use gpuwhy_metrics::{BUCKETS, Exemplar, Registry, bucket_of, families};
use gpuwhy_model::{Call, OpId, RecordKind, ThreadId};
use hashbrown::HashMap;

use super::super::directory::Directory;

/// One for each bucket of durations.
#[derive(Default)]
pub struct Slowest(HashMap<OpId, [Option<Seen>; BUCKETS]>);

#[derive(Clone, Copy)]
struct Seen {
    thread: ThreadId,
    start_ns: u64,
    duration_ns: u64,
}

impl Slowest {
    pub fn see(&mut self, call: &Call) {
        let &Call { op, thread, start_ns, duration_ns, .. } = call;
        let slowest = &mut self.0.entry(op).or_default()[bucket_of(duration_ns)];
        if slowest.is_none_or(|slowest| slowest.duration_ns <= duration_ns) {
            *slowest = Some(Seen { thread, start_ns, duration_ns });
        }
    }

    pub fn tell(&mut self, directory: &Directory, registry: &mut Registry) {
        for (op, slowest) in self.0.drain() {
            let Some(op) = directory.op(op) else { continue };
            for exemplar in slowest.iter().flatten().filter_map(|seen| exemplar(seen, directory)) {
                registry.exemplify(&families::CALL_SECONDS, &[op.name], exemplar);
            }
        }
    }
}

/// With where the call is in the trace, as findings cite it.
fn exemplar(seen: &Seen, directory: &Directory) -> Option<Exemplar> {
    let who = directory.who(seen.thread)?;
    let call = RecordKind::Cuda.at(seen.start_ns).to_string();
    let labels = vec![("pid", who.pid.to_string()), ("tid", who.tid.to_string()), ("call", call)];
    Exemplar::new(labels, seen.duration_ns, seen.start_ns.saturating_add(seen.duration_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_metrics::Format;
    use gpuwhy_model::{CallClass, Layer, Meaning, Name, Process, ProcessId};

    #[test]
    fn the_slowest_call_of_a_second_is_told_with_its_thread_and_its_place_in_the_trace() {
        let (mut slowest, mut directory, mut registry) =
            (Slowest::default(), Directory::default(), Registry::default());
        let (op, process, thread) = (OpId(0), ProcessId(1), ThreadId(2));
        let meaning = Meaning::usual_for(CallClass::Launch);
        let name = "cuLaunchKernel";
        directory.learn(&Name::Op { id: op, name, layer: Layer::Driver, meaning, runtime_name: None });
        directory.learn(&Name::Process { id: process, process: Process { pid: 41, ..Process::default() } });
        directory.learn(&Name::Thread { id: thread, process, tid: 42, comm: "python".to_owned() });
        for (start_ns, duration_ns) in [(1_000_000_000, 5_000), (2_000_000_000, 6_000), (3_000_000_000, 4_500)] {
            slowest.see(&Call::new(thread, op, start_ns, duration_ns));
        }
        // One of a thread that nobody knows.
        slowest.see(&Call::new(ThreadId(3), op, 4_000_000_000, 5_000_000));
        let mut durations = gpuwhy_model::Histogram::default();
        durations.add(gpuwhy_model::Histogram::index(5_000), 3);
        registry.observe(&families::CALL_SECONDS, &[name], &durations, 15_500);
        slowest.tell(&directory, &mut registry);
        let text = Format::OpenMetrics.write(&mut registry);
        let exemplars: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(" # ")?.1)).collect();
        assert_eq!(exemplars, ["{pid=\"41\",tid=\"42\",call=\"cuda:2000000000\"} 0.000006 2.000"]);
    }
}
