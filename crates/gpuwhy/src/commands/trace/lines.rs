//! `--json`: one object per line for every kept call, a last one for the session.

use std::io::{self, BufWriter, Stdout, Write};

use gpuwhy_agent::{CallSeen, Live, Outcome, Watch};
use serde_json::json;

use crate::print;

pub struct Lines {
    out: BufWriter<Stdout>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout()) }
    }
}

impl Watch for Lines {
    fn wants_calls(&self) -> bool {
        true
    }

    fn call(&mut self, seen: &CallSeen<'_>) {
        let call = seen.call;
        let line = json!({
            "type": "call",
            "timestamp_ns": call.start_ns,
            "duration_ns": call.duration_ns,
            "running_ns": call.running_ns(),
            "runqueue_ns": call.runqueue_ns,
            "blocked_ns": call.blocked_ns,
            "pid": seen.pid,
            "tid": seen.tid,
            "comm": seen.comm,
            "op": seen.op,
            "layer": seen.layer,
            "device": call.device,
            "stream": call.stream,
            "bytes": call.bytes,
            "direction": call.direction,
            "ret_code": call.ret_code,
            "parent_id": call.parent_start_ns,
            "blocked_on": call.wait.and_then(|wait| wait.reason),
        });
        // A reader that is gone ends the program by SIGPIPE.
        let _ = writeln!(self.out, "{line}");
    }

    fn second(&mut self, _live: &Live) {
        let _ = self.out.flush();
    }

    fn note(&mut self, text: &str) {
        print::note(text);
    }
}

pub fn summary(outcome: &Outcome) -> io::Result<()> {
    let totals = &outcome.totals;
    let losses: serde_json::Map<_, _> =
        totals.losses.iter().map(|(reason, count)| (reason.as_str().to_owned(), count.into())).collect();
    let line = json!({
        "type": "summary",
        "file": outcome.file.to_string_lossy(),
        "seen": totals.seen,
        "stored": totals.stored,
        "losses": losses,
        "elapsed_ns": totals.elapsed.as_nanos() as u64,
    });
    writeln!(io::stdout(), "{line}")
}
