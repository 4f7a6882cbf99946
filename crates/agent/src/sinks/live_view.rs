//! Whoever watches the trace while it is taken, as a sink.

use std::time::Duration;

use anyhow::Result;
use gpuwhy_model::{Forgotten, Name, Row, RungChange};

use super::directory::Directory;
use super::{Opening, Request, Sink};
use crate::live::{CallSeen, Live, Watch};

struct LiveView {
    watch: Box<dyn Watch>,
    live: Live,
    directory: Directory,
}

/// Who wants every call may be slow for a moment, and still gets every call.
const PATIENCE: Duration = Duration::from_secs(2);

pub fn open(opening: &mut Opening<'_>) -> Result<Option<Box<dyn Sink>>> {
    let view = |watch| LiveView { watch, live: Live::default(), directory: Directory::default() };
    Ok(opening.watch.take().map(|watch| Box::new(view(watch)) as Box<dyn Sink>))
}

impl Sink for LiveView {
    fn name(&self) -> &'static str {
        "the live view"
    }

    fn wants(&self) -> fn(&Row) -> bool {
        match self.watch.wants_calls() {
            true => |row| matters(row) || matches!(row, Row::Calls(_)),
            false => matters,
        }
    }

    fn patience(&self) -> Duration {
        if self.watch.wants_calls() { PATIENCE } else { Duration::ZERO }
    }

    fn take(&mut self, rows: &[Row]) -> Result<Request> {
        for row in rows {
            self.row(row);
        }
        Ok(Request::Nothing)
    }
}

fn matters(row: &Row) -> bool {
    matches!(
        row,
        Row::Name(_) | Row::CallStats(_) | Row::ThreadTimes(_) | Row::RungChange(_) | Row::Note { .. } | Row::Second(_)
    )
}

impl LiveView {
    fn row(&mut self, row: &Row) {
        let Self { watch, live, directory } = self;
        match row {
            Row::Name(name) => {
                directory.learn(name);
                if let Name::Forgotten(Forgotten::Thread(thread)) = name {
                    live.thread_gone(*thread);
                }
            }
            Row::Calls(calls) if watch.wants_calls() => {
                for call in calls {
                    if let (Some(op), Some(who)) = (directory.op(call.op), directory.who(call.thread)) {
                        let (op, layer) = (op.name, op.layer.as_str());
                        watch.call(&CallSeen { call, pid: who.pid, tid: who.tid, comm: who.comm, op, layer });
                    }
                }
            }
            Row::CallStats(stats) => {
                for stats in stats {
                    if let (Some(op), Some(who)) = (directory.op(stats.op), directory.who(stats.thread)) {
                        live.add(stats, op.name, op.meaning, who.pid, who.process_comm);
                    }
                }
            }
            Row::ThreadTimes(times) => {
                for times in times {
                    if let Some(who) = directory.who(times.thread) {
                        live.add_thread(who.pid, who.tid, who.comm, times);
                    }
                }
            }
            Row::RungChange(RungChange { process, op, rung, reason, .. }) => {
                if let (Some(op), Some((pid, who))) = (directory.op(*op), directory.process(*process)) {
                    watch.note(&format!("{} of {who} ({pid}): {rung}; {reason}", op.name));
                }
            }
            Row::Note { note, .. } => watch.note(&note.text),
            Row::Second(totals) => {
                live.totals.clone_from(totals);
                watch.second(live);
                live.start_second();
            }
            _ => {}
        }
    }
}
