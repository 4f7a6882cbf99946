//! The live view: where the time of traced calls goes, redrawn once a second.

use std::borrow::Cow;
use std::io::Write;

use gpuwhy_agent::{Live, LiveRow, Watch};

use crate::print::{self, Columns};
use gpuwhy_questions::units::{count, duration, percent, share};

const ROWS: usize = 12;

pub struct View {
    redraw: bool,
    /// Lines of the last picture, to be drawn over.
    height: usize,
}

impl View {
    pub fn new(redraw: bool) -> Self {
        Self { redraw, height: 0 }
    }
}

impl Watch for View {
    fn second(&mut self, live: &Live) {
        let picture = picture(live);
        let mut out = std::io::stdout().lock();
        if self.redraw && self.height > 0 {
            // Back to where the last picture started, and clear from there.
            let _ = write!(out, "\x1b[{}A\x1b[J", self.height);
        }
        let _ = writeln!(out, "{picture}\n");
        let _ = out.flush();
        self.height = picture.lines().count() + 1;
    }

    fn note(&mut self, text: &str) {
        self.height = 0;
        print::note(text);
    }
}

fn picture(live: &Live) -> String {
    let mut columns = Columns::new([
        "pid",
        "process",
        "call",
        "calls",
        "last s",
        "p50",
        "p99",
        "running",
        "run queue",
        "blocked",
        "errors",
    ]);
    for row in live.top(ROWS) {
        columns.row(cells(row).map(Cow::Owned));
    }
    columns.align_right([0, 3, 4, 5, 6, 7, 8, 9, 10]);
    let lost = live.losses.iter().map(|(reason, lost)| format!(", lost {} {}", count(lost), reason.as_str()));
    let head = format!(
        "{:.0} s, {} functions probed, {} calls seen, tracing takes {} of a thread and {} of a CPU{}",
        live.elapsed.as_secs_f64(),
        live.probes,
        count(live.seen),
        share(live.cost.worst.map_or(0.0, |(_, share)| share)),
        share(live.cost.agent),
        lost.collect::<String>()
    );
    format!("{head}\n{}", columns.text())
}

fn cells(row: &LiveRow) -> [String; 11] {
    let quantile = |share| row.histogram.quantile_ns(share).map_or("-".to_owned(), duration);
    let running = row.sum_ns.saturating_sub(row.runqueue_ns + row.blocked_ns);
    [
        row.pid.to_string(),
        row.comm.clone(),
        row.op.to_owned(),
        format!("{}{}", if row.variance > 0.0 { "~" } else { "" }, count(row.count)),
        count(row.recent),
        quantile(0.5),
        quantile(0.99),
        percent(running, row.sum_ns),
        percent(row.runqueue_ns, row.sum_ns),
        percent(row.blocked_ns, row.sum_ns),
        count(row.errors),
    ]
}
