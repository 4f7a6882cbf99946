//! What people have set limits on, measured second by second, as a sink.

use anyhow::Result;
use gpuwhy_alerts::conditions::{CALL_P99, OFF_CPU, PROCESS_MEMORY, RETRANSMITS};
use gpuwhy_alerts::{Condition, Measured, Shared};
use gpuwhy_model::{
    Call, CallClass, CallStats, Forgotten, MemoryKind, Name, ProcessId, Row, TcpEvent, ThreadId, ThreadTimes,
};
use hashbrown::HashMap;

use super::directory::Directory;
use super::{Opening, Request, Sink};
use crate::clock::Reading;

/// What is measured here. What is found is measured by whoever asks for findings.
const MEASURED: &[&Condition] = &[&PROCESS_MEMORY, &OFF_CPU, &CALL_P99, &RETRANSMITS];

/// Allocations that are followed, of all processes together.
const MOST_ALLOCATIONS: usize = 1 << 20;

struct Alerts {
    shared: Shared,
    heard: Heard,
}

#[derive(Default)]
struct Heard {
    directory: Directory,
    /// What is allocated: where, by whom, how much.
    allocations: HashMap<(ProcessId, u64), u64>,
    /// Of the present second, by process and function: the largest.
    values: HashMap<(&'static Condition, ProcessId, &'static str), f64>,
}

pub fn open(opening: &mut Opening<'_>) -> Result<Option<Box<dyn Sink>>> {
    let alerts = opening.options.alerts.clone();
    Ok(alerts.map(|shared| Box::new(Alerts { shared, heard: Heard::default() }) as Box<dyn Sink>))
}

impl Sink for Alerts {
    fn name(&self) -> &'static str {
        "the alerts"
    }

    fn wants(&self) -> fn(&Row) -> bool {
        |row| {
            matches!(
                row,
                Row::Name(_)
                    | Row::Calls(_)
                    | Row::CallStats(_)
                    | Row::ThreadTimes(_)
                    | Row::TcpEvents(_)
                    | Row::Second(_)
            )
        }
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        for row in rows {
            self.heard.row(row);
            if let Row::Second(_) = row {
                self.shared.take(Reading::now().unix_ns, MEASURED, &self.heard.measured());
                self.heard.values.clear();
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
            Row::CallStats(stats) => stats.iter().for_each(|stats| self.calls(stats)),
            Row::ThreadTimes(times) => times.iter().for_each(|times| self.times(times)),
            Row::TcpEvents(events) => events.iter().for_each(|event| self.tcp(event)),
            _ => {}
        }
    }

    fn name(&mut self, name: &Name) {
        if let Name::Forgotten(Forgotten::Process(gone)) = name {
            self.allocations.retain(|(process, _), _| process != gone);
            self.values.retain(|(_, process, _), _| process != gone);
        }
        self.directory.learn(name);
    }

    /// Follows what is allocated.
    fn call(&mut self, call: &Call) {
        let Some((op, address)) = self.directory.op(call.op).zip(call.address) else { return };
        let Some(process) = self.directory.process_of(call.thread).filter(|_| op.meaning.is_followed) else { return };
        let is_gpus = op.meaning.memory != Some(MemoryKind::Host) && call.ret_code == 0;
        match (op.meaning.class, call.bytes.filter(|_| is_gpus)) {
            (CallClass::Free, _) => drop(self.allocations.remove(&(process, address))),
            (CallClass::Alloc, Some(bytes)) if self.allocations.len() < MOST_ALLOCATIONS => {
                self.allocations.insert((process, address), bytes);
            }
            _ => {}
        }
    }

    fn calls(&mut self, stats: &CallStats) {
        let Some(op) = self.directory.op(stats.op) else { return };
        if op.meaning.is_launch {
            self.directory.launched(stats.thread);
        }
        if let Some(ns) = stats.histogram.quantile_ns(0.99) {
            self.largest(&CALL_P99, stats.thread, op.name, ns as f64 / 1e9);
        }
    }

    fn times(&mut self, times: &ThreadTimes) {
        if self.directory.has_launched(times.thread) && times.wall_ns > 0 {
            let blocked_ns: u64 = times.blocked_ns.iter().sum();
            let outside_ns = blocked_ns.saturating_sub(times.in_calls_blocked_ns);
            let off_ns = outside_ns.saturating_add(times.runqueue_ns);
            self.largest(&OFF_CPU, times.thread, "", (off_ns as f64 / times.wall_ns as f64).min(1.0));
        }
    }

    fn tcp(&mut self, event: &TcpEvent) {
        if let Some(process) = event.process {
            *self.values.entry((&RETRANSMITS, process, "")).or_default() += 1.0;
        }
    }

    fn largest(&mut self, condition: &'static Condition, thread: ThreadId, what: &'static str, value: f64) {
        if let Some(process) = self.directory.process_of(thread) {
            let largest = self.values.entry((condition, process, what)).or_default();
            *largest = largest.max(value);
        }
    }

    fn measured(&mut self) -> Vec<Measured<'_>> {
        for (&(process, _), &bytes) in &self.allocations {
            *self.values.entry((&PROCESS_MEMORY, process, "")).or_default() += bytes as f64;
        }
        let measured =
            |(&(condition, process, what), &value): (&(&'static Condition, ProcessId, &'static str), &f64)| {
                let (pid, comm) = self.directory.process(process)?;
                Some(Measured { condition, pid: Some(pid), comm, what, value, severity: None })
            };
        self.values.iter().filter_map(measured).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::{Layer, Meaning, OpId, Process};

    const PROCESS: ProcessId = ProcessId(1);
    const THREAD: ThreadId = ThreadId(1);

    fn scene() -> Heard {
        let mut heard = Heard::default();
        for (id, name, class) in [
            (0, "cuMemAlloc", CallClass::Alloc),
            (1, "cuMemFree", CallClass::Free),
            (2, "cuLaunchKernel", CallClass::Launch),
        ] {
            let (id, meaning) = (OpId(id), Meaning::usual_for(class));
            heard.row(&Row::Name(Name::Op { id, name, layer: Layer::Driver, meaning, runtime_name: None }));
        }
        let process = Process { pid: 4711, comm: "python".to_owned(), ..Process::default() };
        heard.row(&Row::Name(Name::Process { id: PROCESS, process }));
        heard.row(&Row::Name(Name::Thread { id: THREAD, process: PROCESS, tid: 4711, comm: "python".to_owned() }));
        heard
    }

    fn told(heard: &mut Heard) -> Vec<(&'static str, String, f64)> {
        let mut told: Vec<_> =
            heard.measured().iter().map(|one| (one.condition.name, one.what.to_owned(), one.value)).collect();
        told.sort_by(|one, other| one.0.cmp(other.0));
        told
    }

    #[test]
    fn memory_is_what_was_allocated_and_not_freed() {
        let mut heard = scene();
        let call =
            |op: u32, address, bytes| Call { address: Some(address), bytes, ..Call::new(THREAD, OpId(op), 0, 10) };
        heard.row(&Row::Calls(vec![call(0, 16, Some(100)), call(0, 32, Some(50)), call(1, 16, None)]));
        assert_eq!(told(&mut heard), [("process-memory", String::new(), 50.0)]);
        heard.row(&Row::Name(Name::Forgotten(Forgotten::Process(PROCESS))));
        heard.values.clear();
        assert_eq!(told(&mut heard), []);
    }

    #[test]
    fn a_thread_that_launches_is_off_the_cpu_outside_of_calls() {
        let mut heard = scene();
        let times = |thread| ThreadTimes {
            runqueue_ns: 100,
            blocked_ns: std::array::from_fn(|reason| if reason == 1 { 500 } else { 0 }),
            in_calls_blocked_ns: 200,
            ..ThreadTimes::new(0, thread, 1000)
        };
        heard.row(&Row::ThreadTimes(vec![times(THREAD)]));
        assert_eq!(told(&mut heard), [], "it launches nothing");
        heard.row(&Row::CallStats(vec![CallStats::alike(0, THREAD, OpId(2), 7, 5_000)]));
        heard.row(&Row::ThreadTimes(vec![times(THREAD)]));
        let [(_, launch, p99), (name, _, off)] = &told(&mut heard)[..] else { panic!("two are measured") };
        assert_eq!((launch.as_str(), *name, *off), ("cuLaunchKernel", "off-cpu", 0.4));
        assert!((4e-6..6e-6).contains(p99), "{p99}");
    }
}
