//! What is scraped while the trace is taken, as a sink.

mod slowest;

use std::collections::VecDeque;

use anyhow::Result;
use gpuwhy_metrics::{FAMILIES, Registry, Shared, families};
use gpuwhy_model::{
    Call, CallStats, Forgotten, Name, Row, RungChange, Sample, TcpEvent, ThreadTimes, Totals, WaitReason,
};

use super::collectives::Collectives;
use super::directory::Directory;
use super::{Opening, Request, Sink};
use slowest::Slowest;

/// So many seconds after a process has ended its series are forgotten: whoever scrapes has seen them by then.
const KEPT_SECONDS: u64 = 300;

/// The first labels of a family that is about processes.
const A_PROCESS: &[&str] = &["pid", "comm"];

struct Metrics {
    registry: Shared,
    heard: Heard,
}

#[derive(Default)]
struct Heard {
    directory: Directory,
    collectives: Collectives,
    slowest: Slowest,
    /// Processes that have ended, with the second in which they did.
    gone: VecDeque<(u64, u32, String)>,
    seconds: u64,
}

pub fn open(opening: &mut Opening<'_>) -> Result<Option<Box<dyn Sink>>> {
    let Some(registry) = opening.options.metrics.clone() else { return Ok(None) };
    registry.lock().set(&families::BUDGET, &[], opening.options.cost.budget.unwrap_or(0.0));
    Ok(Some(Box::new(Metrics { registry, heard: Heard::default() })))
}

impl Sink for Metrics {
    fn name(&self) -> &'static str {
        "the metrics"
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
                    | Row::CallStats(_)
                    | Row::ThreadTimes(_)
                    | Row::TcpEvents(_)
                    | Row::FabricEvents(_)
                    | Row::Samples(_)
                    | Row::RungChange(_)
                    | Row::Losses(_)
                    | Row::Second(_)
            )
        }
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        let mut registry = self.registry.lock();
        for row in rows {
            self.heard.row(row, &mut registry);
        }
        Ok(Request::Nothing)
    }
}

impl Heard {
    fn row(&mut self, row: &Row, registry: &mut Registry) {
        match row {
            Row::Name(name) => self.name(name, registry),
            Row::Calls(calls) => calls.iter().for_each(|call| self.call(call)),
            Row::CollectiveCaptures(all) => all.iter().for_each(|one| self.collectives.capture(one)),
            Row::CollectiveReplays(all) => all.iter().for_each(|one| self.collectives.replay(one)),
            Row::CollectiveWaits(all) => all.iter().for_each(|one| self.collectives.wait(one)),
            Row::CallStats(stats) => stats.iter().for_each(|stats| self.calls(stats, registry)),
            Row::ThreadTimes(times) => times.iter().for_each(|times| self.times(times, registry)),
            Row::TcpEvents(events) => events.iter().for_each(|event| self.tcp(event, registry)),
            Row::FabricEvents(events) => {
                for event in events {
                    let is_error = if event.is_fabric_error { "true" } else { "false" };
                    registry.add(&families::RDMA_EVENTS, &[event.kind.as_str(), is_error], 1.0);
                }
            }
            Row::Samples(samples) => take_samples(samples, registry),
            Row::RungChange(change) => self.rung(change, registry),
            Row::Losses(losses) => {
                for (reason, count) in losses.iter() {
                    registry.set(&families::LOST, &[reason.as_str()], count as f64);
                }
            }
            Row::Second(totals) => self.second(totals, registry),
            _ => {}
        }
    }

    fn name(&mut self, name: &Name, registry: &mut Registry) {
        if let &Name::Forgotten(forgotten) = name {
            // Whoever is forgotten has no name any more.
            self.tell(registry);
            self.collectives.forget(forgotten);
        }
        if let Name::Forgotten(Forgotten::Process(id)) = name
            && let Some((pid, comm)) = self.directory.process(*id)
        {
            self.gone.push_back((self.seconds, pid, comm.to_owned()));
        }
        self.directory.learn(name);
    }

    fn call(&mut self, call: &Call) {
        let Some(op) = self.directory.op(call.op) else { return };
        self.slowest.see(call);
        let is_of_ranks = call.own.is_some() || op.meaning.is_graph_launch();
        if let Some(process) = self.directory.process_of(call.thread).filter(|_| is_of_ranks) {
            self.collectives.call(process, call, &op.meaning);
        }
    }

    /// What single calls came to since the last time.
    fn tell(&mut self, registry: &mut Registry) {
        self.collectives.tell(&self.directory, registry);
        self.slowest.tell(&self.directory, registry);
    }

    fn calls(&mut self, stats: &CallStats, registry: &mut Registry) {
        let (Some(op), Some(who)) = (self.directory.op(stats.op), self.directory.who(stats.thread)) else { return };
        let (pid, of_process) = (who.pid.to_string(), who.process_comm);
        let labels = [pid.as_str(), of_process, op.name];
        registry.add(&families::CALLS, &labels, stats.estimate as f64);
        if stats.errors > 0 {
            registry.add(&families::CALL_ERRORS, &labels, stats.errors as f64);
        }
        if stats.bytes > 0 {
            registry.add(&families::CALL_BYTES, &labels, stats.bytes as f64);
        }
        registry.observe(&families::CALL_SECONDS, &[op.name], &stats.histogram, stats.sum_ns);
        if op.meaning.is_launch {
            self.directory.launched(stats.thread);
        }
    }

    fn times(&self, times: &ThreadTimes, registry: &mut Registry) {
        let who = self.directory.who(times.thread).filter(|_| self.directory.has_launched(times.thread));
        let Some(who) = who else { return };
        let pid = who.pid.to_string();
        let mut add = |state: &str, ns: u64| {
            if ns > 0 {
                registry.add(&families::THREAD_SECONDS, &[&pid, who.process_comm, state], ns as f64 / 1e9);
            }
        };
        let blocked_ns: u64 = times.blocked_ns.iter().sum();
        add("running", times.wall_ns.saturating_sub(times.runqueue_ns).saturating_sub(blocked_ns));
        add("waiting_for_cpu", times.runqueue_ns);
        for (reason, &ns) in WaitReason::ALL.iter().zip(&times.blocked_ns) {
            add(&format!("blocked_{}", reason.as_str()), ns);
        }
    }

    fn tcp(&self, event: &TcpEvent, registry: &mut Registry) {
        if let Some((pid, comm)) = event.process.and_then(|process| self.directory.process(process)) {
            registry.add(&families::RETRANSMITS, &[&pid.to_string(), comm], 1.0);
        }
    }

    fn rung(&self, change: &RungChange, registry: &mut Registry) {
        let process = self.directory.process(change.process);
        let (Some((pid, comm)), Some(op)) = (process, self.directory.op(change.op)) else { return };
        let pid = pid.to_string();
        registry.forget(&families::RUNG, |labels| labels[..3].iter().map(|label| &**label).eq([&pid, comm, op.name]));
        registry.set(&families::RUNG, &[&pid, comm, op.name, change.rung.as_str()], 1.0);
    }

    fn second(&mut self, totals: &Totals, registry: &mut Registry) {
        self.tell(registry);
        registry.set(&families::OVERHEAD, &[], totals.cost.worst);
        registry.set(&families::TRACER_CPU, &[], totals.cost.agent);
        registry.set(&families::PROBES, &[], totals.probes as f64);
        registry.set(&families::STORED, &[], totals.stored as f64);
        for sink in &totals.sinks {
            registry.set(&families::LOST_ROWS, &[sink.name], sink.lost_rows as f64);
        }
        self.seconds += 1;
        while let Some((_, pid, comm)) = self.gone.pop_front_if(|(at, ..)| *at + KEPT_SECONDS <= self.seconds) {
            // Its number and name may be another one's by now.
            if self.directory.has_process(pid, &comm) {
                continue;
            }
            let pid = pid.to_string();
            for family in FAMILIES.iter().filter(|family| family.labels.starts_with(A_PROCESS)) {
                registry.forget(family, |labels| *labels[0] == *pid && *labels[1] == *comm);
            }
        }
    }
}

fn take_samples(samples: &[Sample], registry: &mut Registry) {
    // Whoever has something on a GPU is told each time.
    if samples.iter().any(|one| one.name == Sample::GPU_PROCESSES) {
        registry.forget(&families::PROCESS_MEMORY, |_| true);
    }
    samples.iter().for_each(|one| take_sample(one, registry));
}

/// Counters of RDMA ports, and what processes have of GPUs, have names of their own, as others publish them.
fn take_sample(sample: &Sample, registry: &mut Registry) {
    let device = sample.device.as_deref().unwrap_or_default();
    let parts: Vec<&str> = device.split('/').collect();
    let name = format!("gpuwhy_{}", sample.name.replace('.', "_"));
    if let Some(family) = FAMILIES.iter().find(|one| one.name == name && one.labels.len() == parts.len()) {
        return registry.set(family, &parts, sample.value);
    }
    registry.set(&families::SAMPLE, &[&sample.name, device, &sample.unit], sample.value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_metrics::{Format, MOST_SERIES};
    use gpuwhy_model::{CallClass, Layer, Meaning, OpId, Process, ProcessId, ThreadId};

    #[derive(Default)]
    struct Scene {
        heard: Heard,
        registry: Registry,
    }

    impl Scene {
        fn new() -> Self {
            let mut scene = Self::default();
            let meaning = Meaning::usual_for(CallClass::Launch);
            let name = "cuLaunchKernel";
            let op = Name::Op { id: OpId(0), name, layer: Layer::Driver, meaning, runtime_name: None };
            scene.tell(Row::Name(op));
            scene
        }

        fn tell(&mut self, row: Row) {
            self.heard.row(&row, &mut self.registry);
        }

        /// A process with a thread that launches.
        fn launches(&mut self, number: u32) {
            let (id, thread) = (ProcessId(number), ThreadId(number));
            let process = Process { pid: 1000 + number, comm: format!("job {number}"), ..Process::default() };
            self.tell(Row::Name(Name::Process { id, process }));
            let comm = "worker".to_owned();
            self.tell(Row::Name(Name::Thread { id: thread, process: id, tid: 1000 + number, comm }));
            self.tell(Row::CallStats(vec![CallStats::alike(0, thread, OpId(0), 7, 5_000)]));
        }

        fn passes(&mut self, seconds: u64) {
            (0..seconds).for_each(|_| self.tell(Row::Second(Totals::default())));
        }

        fn text(&mut self) -> String {
            Format::Classic.write(&mut self.registry)
        }
    }

    #[test]
    fn ten_thousand_processes_take_no_more_than_the_budget() {
        let mut scene = Scene::new();
        (0..10_000).for_each(|number| scene.launches(number));
        let text = scene.text();
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(lines <= MOST_SERIES, "{lines}");
        let launches = "gpuwhy_call_duration_seconds_count{function=\"cuLaunchKernel\"} 70000";
        assert!(text.lines().any(|line| line == launches));
        assert!(text.contains("gpuwhy_calls_total{pid=\"overflow\",comm=\"overflow\",function=\"overflow\"} "));
    }

    #[test]
    fn a_process_that_has_ended_is_forgotten_after_a_while_unless_its_number_is_used_again() {
        let mut scene = Scene::new();
        scene.launches(1);
        scene.launches(2);
        for number in [1, 2] {
            scene.tell(Row::Name(Name::Forgotten(Forgotten::Thread(ThreadId(number)))));
            scene.tell(Row::Name(Name::Forgotten(Forgotten::Process(ProcessId(number)))));
        }
        scene.passes(KEPT_SECONDS - 1);
        assert!(scene.text().contains("comm=\"job 1\""));
        scene.launches(2);
        scene.passes(2);
        let text = scene.text();
        assert!(!text.contains("comm=\"job 1\"") && text.contains("comm=\"job 2\""), "{text}");
    }

    fn sample(name: &str, device: &str) -> Sample {
        let (name, device) = (name.to_owned(), Some(device.to_owned()));
        Sample { at_ns: 0, name, unit: String::new(), device, value: 3.0 }
    }

    #[test]
    fn a_process_that_has_left_a_gpu_has_none_of_its_memory() {
        let mut scene = Scene::new();
        let memory = |device| sample(Sample::GPU_PROCESS_MEMORY, device);
        scene.tell(Row::Samples(vec![sample(Sample::GPU_PROCESSES, "0"), memory("0/4711"), memory("0/4712")]));
        let line = |pid| format!("gpuwhy_gpu_process_memory{{device=\"0\",pid=\"{pid}\"}} 3\n");
        let text = scene.text();
        assert!(text.contains(&line(4711)) && text.contains(&line(4712)), "{text}");
        scene.tell(Row::Samples(vec![sample("host.swap.free", "")]));
        assert!(scene.text().contains(&line(4711)), "other samplers know nothing of it");
        scene.tell(Row::Samples(vec![sample(Sample::GPU_PROCESSES, "0"), memory("0/4712")]));
        let text = scene.text();
        assert!(!text.contains(&line(4711)) && text.contains(&line(4712)), "{text}");
    }

    #[test]
    fn counters_of_ports_have_the_names_that_others_publish() {
        let mut scene = Scene::new();
        let port = "mlx5_0/1/InfiniBand";
        let errors = Sample::FABRIC_ERRORS.iter().map(|name| sample(name, port));
        scene.tell(Row::Samples(errors.chain([sample("gpu.load", "0")]).collect()));
        let text = scene.text();
        let labels = "{rdma_device=\"mlx5_0\",rdma_port=\"1\",rdma_transport=\"InfiniBand\"} 3";
        for name in Sample::FABRIC_ERRORS {
            let line = format!("gpuwhy_{}{labels}", name.replace('.', "_"));
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(text.contains("gpuwhy_sample{name=\"gpu.load\",device=\"0\",unit=\"\"} 3\n"), "{text}");
    }
}
