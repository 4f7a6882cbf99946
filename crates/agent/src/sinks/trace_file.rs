//! The trace file as a sink.

mod numbers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use gpuwhy_model::{Forgotten, LossReason, Name, Row, SessionEnd};
use gpuwhy_store::{Options, StoreError, Writer};

use super::{Opening, Request, Sink, Stored};
use crate::clock::Reading;
use numbers::Numbers;

pub struct TraceFile {
    writer: Writer,
    numbers: Numbers,
    stack_epoch: u32,
    /// `None` until the first commit, which makes the file readable.
    last_commit: Option<Instant>,
    stored: Arc<Stored>,
}

/// A crash loses at most this much, plus what is on its way.
const COMMIT_EVERY: Duration = Duration::from_millis(400);
/// A disk that is busy for a moment costs no record.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn open(opening: &mut Opening<'_>) -> Result<Option<Box<dyn Sink>>> {
    let options = Options { max_size: opening.options.max_size };
    let writer = Writer::open(&opening.options.out, opening.session, &options)?;
    Ok(Some(Box::new(TraceFile {
        stack_epoch: writer.stack_epoch(),
        writer,
        numbers: Numbers::default(),
        last_commit: None,
        stored: Arc::clone(&opening.stored),
    })))
}

impl Sink for TraceFile {
    fn name(&self) -> &'static str {
        "the trace file"
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn is_essential(&self) -> bool {
        true
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        let mut in_hand = rows.iter().map(Row::calls).sum::<usize>() as u64;
        let result = self.write(rows, &mut in_hand);
        if result.is_err() {
            self.stored.not_written.fetch_add(in_hand, Ordering::Relaxed);
            self.take_back();
        }
        result?;
        let epoch = self.writer.stack_epoch();
        let is_new = std::mem::replace(&mut self.stack_epoch, epoch) != epoch;
        Ok(if is_new { Request::StacksAgain } else { Request::Nothing })
    }

    fn finish(mut self: Box<Self>, end: &SessionEnd, lost_calls: u64) -> Result<()> {
        self.take_back();
        let mut end = end.clone();
        let not_written = self.stored.not_written.load(Ordering::Relaxed);
        end.losses.set(LossReason::NotWritten, not_written + lost_calls);
        Ok(self.writer.finish(&end)?)
    }
}

impl TraceFile {
    /// Calls that were given to the writer and are not in the file, because a write failed.
    fn take_back(&mut self) {
        let taken_back = self.writer.take_not_written();
        self.stored.calls.fetch_sub(taken_back, Ordering::Relaxed);
        self.stored.not_written.fetch_add(taken_back, Ordering::Relaxed);
    }

    /// `in_hand` counts the calls that the writer has not been given yet.
    fn write(&mut self, rows: &[Row], in_hand: &mut u64) -> Result<(), StoreError> {
        for row in rows {
            *in_hand -= row.calls() as u64;
            self.row(row)?;
        }
        if self.last_commit.is_none_or(|last| last.elapsed() >= COMMIT_EVERY) {
            self.last_commit = Some(Instant::now());
            self.writer.commit(Reading::now().unix_ns)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Row) -> Result<(), StoreError> {
        let Self { writer, numbers, .. } = self;
        match row {
            Row::Name(name) => self.name(name),
            Row::Calls(calls) => {
                let mut known = Vec::with_capacity(calls.len());
                for call in calls {
                    known.push(numbers.call(call, writer)?);
                }
                self.stored.calls.fetch_add(known.len() as u64, Ordering::Relaxed);
                writer.calls(&mut known)
            }
            Row::CollectiveCaptures(captures) => writer.collective_captures(captures),
            Row::CollectiveReplays(replays) => writer.collective_replays(replays),
            Row::CollectiveWaits(waits) => writer.collective_waits(waits),
            Row::Stretches(stretches) => {
                let known = stretches.iter().map(|stretch| numbers.stretch(stretch, writer));
                let known = known.collect::<Result<Vec<_>, _>>()?;
                writer.stretches(&known)
            }
            Row::KernelWork(work) => {
                let known = work.iter().map(|work| numbers.kernel_work(work, writer)).collect::<Result<Vec<_>, _>>()?;
                writer.kernel_work(&known)
            }
            Row::IoRequests(requests) => {
                writer.io_requests(&requests.iter().map(|request| numbers.io_request(request)).collect::<Vec<_>>())
            }
            Row::TcpEvents(events) => {
                writer.tcp_events(&events.iter().map(|event| numbers.tcp_event(event)).collect::<Vec<_>>())
            }
            Row::FabricEvents(events) => {
                writer.fabric_events(&events.iter().map(|event| numbers.fabric_event(event)).collect::<Vec<_>>())
            }
            Row::Annotations(annotations) => {
                writer.annotations(&annotations.iter().map(|one| numbers.annotation(one)).collect::<Vec<_>>())
            }
            Row::Stack { id, stack } => {
                let id = numbers.stack(*id, writer)?;
                writer.stack(id, stack)
            }
            Row::CallStats(stats) => {
                writer.stats(&stats.iter().map(|stats| numbers.call_stats(stats)).collect::<Vec<_>>())
            }
            Row::ThreadTimes(times) => {
                writer.thread_times(&times.iter().map(|times| numbers.thread_times(times)).collect::<Vec<_>>())
            }
            Row::Standstills(standstills) => {
                let known = standstills.iter().map(|one| numbers.standstill(one, writer));
                let known = known.collect::<Result<Vec<_>, _>>()?;
                writer.standstills(&known)
            }
            Row::IoUsage(usage) => {
                writer.io_usage(&usage.iter().map(|usage| numbers.io_usage(usage)).collect::<Vec<_>>())
            }
            Row::StackSamples(samples) => {
                let known = samples.iter().map(|sample| numbers.stack_sample(sample, writer));
                let known = known.collect::<Result<Vec<_>, _>>()?;
                writer.stack_samples(&known)
            }
            Row::StackWalks(walks) => writer.stack_walks(walks),
            Row::Samples(samples) => writer.samples(samples),
            Row::Life(life) => writer.life(std::slice::from_ref(life)),
            Row::RungChange(change) => writer.rung_change(&numbers.rung_change(change)),
            Row::ClockAnchor { monotonic_ns, unix_offset_ns } => writer.clock_anchor(*monotonic_ns, *unix_offset_ns),
            Row::Note { at_ns, note } => writer.note(*at_ns, note),
            Row::AgentUsage(usage) => writer.agent_usage(usage),
            Row::Losses(losses) => writer.losses(losses),
            Row::Second(_) => Ok(()),
        }
    }

    fn name(&mut self, name: &Name) -> Result<(), StoreError> {
        let Self { writer, numbers, .. } = self;
        match name {
            Name::Op { id, name, layer, meaning, runtime_name } => {
                numbers.ops.insert(*id, writer.op(name, *layer, *meaning, *runtime_name)?);
            }
            Name::Module { id, path, is_runtime } => {
                numbers.modules.insert(*id, writer.module(path, *is_runtime)?);
            }
            Name::Process { id, process } => {
                numbers.processes.insert(*id, writer.process(process)?);
            }
            Name::Thread { id, process, tid, comm } => {
                let process = numbers.process(*process);
                numbers.threads.insert(*id, writer.thread(process, *tid, comm)?);
            }
            Name::ThreadName { id, comm } => writer.rename_thread(numbers.thread(*id), comm)?,
            Name::Target { id, target } => numbers.add_target(*id, target),
            Name::Label { process, label } => writer.label(numbers.process(*process), &label.key, &label.value)?,
            Name::Kernel { process, handle, kernel } => writer.kernel(numbers.process(*process), *handle, kernel)?,
            Name::Forgotten(Forgotten::Process(id)) => {
                if let Some(id) = numbers.processes.remove(id) {
                    writer.process_ended(id, Reading::now().unix_ns);
                }
            }
            Name::Forgotten(Forgotten::Thread(id)) => {
                if let Some(id) = numbers.threads.remove(id) {
                    writer.thread_ended(id, Reading::now().unix_ns);
                }
            }
            Name::Forgotten(Forgotten::Targets) => numbers.targets.clear(),
            Name::Forgotten(Forgotten::Stacks) => numbers.stacks.clear(),
        }
        Ok(())
    }
}
