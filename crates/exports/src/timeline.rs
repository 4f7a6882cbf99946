//! What is drawn over time, whatever draws it: threads with their calls and waits, collective operations, samples, findings,
//! and arrows from whoever made something happen.

use gpuwhy_model::{Finding, Phase, PhaseName};
use gpuwhy_questions::Reading;
use gpuwhy_questions::questions::annotations::HELD_IN;
use gpuwhy_store::Cells;
use hashbrown::HashMap;

use crate::{Export, ExportError};

/// Draws.
pub trait Draw {
    fn process(&mut self, process: &Process<'_>) -> Result<(), ExportError>;
    fn thread(&mut self, thread: &Thread<'_>) -> Result<(), ExportError>;
    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), ExportError>;
    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), ExportError>;
}

/// A process; on a merged trace, of one of several hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pid {
    pub host: u32,
    pub pid: u32,
}

impl Pid {
    /// A number of its own in a tool that knows no hosts.
    pub fn number(self) -> u32 {
        const MORE_THAN_ANY_PID: u32 = 10_000_000;
        self.host.saturating_mul(MORE_THAN_ANY_PID).saturating_add(self.pid)
    }
}

pub struct Process<'a> {
    pub pid: Pid,
    /// With its host where there are several.
    pub name: String,
    pub command: &'a str,
}

pub struct Thread<'a> {
    pub pid: Pid,
    pub tid: u32,
    pub name: &'a str,
}

/// Where slices lie that do not overlap, or one inside of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    Calls {
        pid: Pid,
        tid: u32,
    },
    Waits {
        pid: Pid,
        tid: u32,
    },
    /// Operations of several GPUs that were asked for and are not done, in the order of a stream.
    Collectives {
        pid: Pid,
        lane: u32,
    },
    /// What programs and people have told of a process, or of all of them: one for each key.
    Annotations {
        pid: Pid,
        lane: u32,
    },
    /// One for each.
    Finding {
        number: u32,
    },
}

/// Something that took time, or a moment where start and end are the same.
pub struct Slice<'a> {
    pub track: Track,
    pub name: &'a str,
    pub category: &'a str,
    pub start_ns: u64,
    pub end_ns: u64,
    pub details: &'a [(&'static str, Detail<'a>)],
    /// An arrow of this number begins here.
    pub begins: Option<u64>,
    /// An arrow of this number ends here.
    pub ends: Option<u64>,
}

impl<'a> Slice<'a> {
    /// Without details and arrows.
    fn new(track: Track, category: &'a str, name: &'a str, start_ns: u64, end_ns: u64) -> Self {
        Self { track, name, category, start_ns, end_ns, details: &[], begins: None, ends: None }
    }
}

pub enum Detail<'a> {
    Integer(i64),
    Real(f64),
    Text(&'a str),
}

pub struct Sample<'a> {
    pub at_ns: u64,
    /// What was measured, and on which device where there are several.
    pub name: &'a str,
    pub unit: &'a str,
    pub value: f64,
}

/// Arrows have the number of the record at their end: waits have this bit, calls have not.
const OF_A_WAIT: u64 = 1 << 63;

/// Rows between two words about how far it is.
const ROWS: u64 = 50_000;

/// Draws all of it.
pub fn draw(export: &Export<'_>, to: &mut dyn Draw) -> Result<(), ExportError> {
    let reading = export.asked.read(export.part)?;
    let drawing = Drawing { export, hosts: Hosts::read(&reading)?, reading };
    drawing.threads(to)?;
    drawing.calls(to)?;
    drawing.waits(to)?;
    drawing.collectives(to)?;
    drawing.annotations(to)?;
    drawing.samples(to)?;
    drawing.findings(to)
}

struct Drawing<'a> {
    export: &'a Export<'a>,
    reading: Reading,
    hosts: Hosts,
}

/// Which host each session was on.
struct Hosts {
    names: Vec<String>,
    of_session: HashMap<i64, u32>,
}

impl Hosts {
    fn read(reading: &Reading) -> Result<Self, ExportError> {
        let mut hosts = Self { names: Vec::new(), of_session: HashMap::new() };
        reading.trace.each("SELECT id, host FROM sessions ORDER BY id", &[], |row| {
            let name = row.text(1).unwrap_or_default();
            let known = hosts.names.iter().position(|known| *known == name);
            let at = known.unwrap_or(hosts.names.len());
            if known.is_none() {
                hosts.names.push(name.into_owned());
            }
            hosts.of_session.insert(row.integer(0).unwrap_or(0), at as u32);
            Ok::<_, ExportError>(())
        })?;
        Ok(hosts)
    }

    fn pid(&self, session: Option<i64>, pid: Option<u32>) -> Pid {
        let host = session.and_then(|session| self.of_session.get(&session)).copied().unwrap_or(0);
        Pid { host, pid: pid.unwrap_or(0) }
    }

    fn named(&self, pid: Pid, name: &str) -> String {
        match self.names.get(pid.host as usize) {
            Some(host) if self.names.len() > 1 => format!("{host}: {name}"),
            _ => name.to_owned(),
        }
    }
}

impl Drawing<'_> {
    fn threads(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        // Of all: whoever woke somebody has a name. A process that has changed its program is named by the last one.
        let sql = "SELECT session_id, pid, comm, cmdline FROM processes ORDER BY id";
        self.reading.trace.each(sql, &[], |row| {
            let pid = self.hosts.pid(row.integer(0), row.number(1));
            let (name, command) = (row.text(2).unwrap_or_default(), row.text(3).unwrap_or_default());
            to.process(&Process { pid, name: self.hosts.named(pid, &name), command: &command })
        })?;
        let sql = "SELECT session_id, pid, tid, threads.comm FROM threads JOIN processes ON processes.id = process_id
            ORDER BY threads.id";
        self.reading.trace.each(sql, &[], |row| {
            let pid = self.hosts.pid(row.integer(0), row.number(1));
            to.thread(&Thread { pid, tid: row.number(2).unwrap_or(0), name: &row.text(3).unwrap_or_default() })
        })
    }

    fn calls(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        const SQL: &str = "SELECT id, duration_ns, session_id, pid, tid, op, class, layer, parent_id, runqueue_ns,
            blocked_ns, device, stream, bytes, ret_code, direction, kernel
            FROM cuda_events WHERE id >= ? AND id < ? AND (? IS NULL OR pid = ?)";
        let mut far = self.far(0.0, 0.5, "calls");
        self.reading.trace.each(SQL, &self.reading.bounds(), |row| {
            let start_ns = row.ns(0);
            far.at(start_ns);
            let (layer, direction, kernel) = (row.text(7), row.text(15), row.text(16));
            let mut details = Details::default();
            details.text("layer", layer.as_deref());
            details.integers(row, &[("runqueue_ns", 9), ("blocked_ns", 10), ("device", 11), ("stream", 12)]);
            details.integers(row, &[("bytes", 13), ("ret_code", 14)]);
            details.text("direction", direction.as_deref());
            details.text("kernel", kernel.as_deref());
            to.slice(&Slice {
                track: Track::Calls {
                    pid: self.hosts.pid(row.integer(2), row.number(3)),
                    tid: row.number(4).unwrap_or(0),
                },
                name: &row.text(5).unwrap_or_default(),
                category: &row.text(6).unwrap_or_default(),
                start_ns,
                end_ns: start_ns.saturating_add(row.ns(1)),
                details: &details.0,
                // A runtime's function calls the driver's.
                begins: (layer.as_deref() == Some("runtime")).then_some(start_ns),
                ends: row.integer(8).map(i64::cast_unsigned),
            })
        })
    }

    fn waits(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        const SQL: &str = "SELECT id, blocked_ns, runqueue_ns, session_id, pid, tid, blocked_on, is_throttled, op,
            target_kind, target, woken_by_pid, woken_by_tid, woken_by_comm, taken_by_comm, taken_by_pid, comm
            FROM sched_events WHERE id >= ? AND id < ? AND (? IS NULL OR pid = ?)";
        let mut far = self.far(0.5, 0.4, "waits");
        self.reading.trace.each(SQL, &self.reading.bounds(), |row| {
            let start_ns = row.ns(0);
            far.at(start_ns);
            let (blocked_ns, runqueue_ns) = (row.ns(1), row.ns(2));
            let pid = self.hosts.pid(row.integer(3), row.number(4));
            let track = Track::Waits { pid, tid: row.number(5).unwrap_or(0) };
            let woken_ns = start_ns.saturating_add(blocked_ns);
            let waker = row.number(12).map(|tid| (Pid { pid: row.number(11).unwrap_or(0), ..pid }, tid));
            let arrow = waker.map(|_| start_ns | OF_A_WAIT);
            if blocked_ns > 0 {
                let (op, kind, target, by) = (row.text(8), row.text(9), row.text(10), row.text(13));
                let mut details = Details::default();
                details.text("in", op.as_deref());
                details.text("on", kind.as_deref());
                details.text("target", target.as_deref());
                details.text("woken_by", by.as_deref());
                details.integers(row, &[("woken_by_pid", 11), ("woken_by_tid", 12)]);
                let name = row.text(6).unwrap_or_default();
                to.slice(&Slice { details: &details.0, ..Slice::new(track, "wait", &name, start_ns, woken_ns) })?;
            }
            if let Some((pid, tid)) = waker {
                let name = format!("wakes {}", row.text(16).unwrap_or_default());
                let moment = Slice::new(Track::Waits { pid, tid }, "wake", &name, woken_ns, woken_ns);
                to.slice(&Slice { begins: arrow, ..moment })?;
            }
            // The arrow ends where it could go on.
            if runqueue_ns > 0 || arrow.is_some() {
                let by = row.text(14);
                let mut details = Details::default();
                details.text("taken_by", by.as_deref());
                details.integers(row, &[("taken_by_pid", 15)]);
                let name = if row.integer(7) == Some(1) { "throttled" } else { "runnable" };
                let end_ns = woken_ns.saturating_add(runqueue_ns);
                let slice = Slice::new(track, "runqueue", name, woken_ns, end_ns);
                to.slice(&Slice { details: &details.0, ends: arrow, ..slice })?;
            }
            Ok(())
        })
    }

    /// From when they were asked for, or the one before was done, until they were done.
    fn collectives(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        const SQL: &str =
            "SELECT id, done_ns, session_id, pid, stream, op, rank, nranks, seq, bytes, wait_ns, comm_id_hash
            FROM nccl_events WHERE id >= ? AND id < ? AND (? IS NULL OR pid = ?) AND done_ns IS NOT NULL";
        let mut lanes: HashMap<(Pid, Option<i64>), (u32, u64)> = HashMap::new();
        self.reading.trace.each(SQL, &self.reading.bounds(), |row| {
            let pid = self.hosts.pid(row.integer(2), row.number(3));
            let next = lanes.len() as u32;
            let (lane, before_ns) = lanes.entry((pid, row.integer(4))).or_insert((next, 0));
            let (start_ns, end_ns) = (row.ns(0).max(*before_ns), row.ns(1));
            if end_ns <= start_ns {
                return Ok(());
            }
            *before_ns = end_ns;
            let mut details = Details::default();
            details.integers(row, &[("rank", 6), ("nranks", 7), ("seq", 8), ("bytes", 9), ("wait_ns", 10)]);
            details.integers(row, &[("comm_id_hash", 11), ("stream", 4)]);
            let (track, name) = (Track::Collectives { pid, lane: *lane }, row.text(5).unwrap_or_default());
            to.slice(&Slice { details: &details.0, ..Slice::new(track, "collective", &name, start_ns, end_ns) })
        })
    }

    fn annotations(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        const SQL: &str =
            "SELECT timestamp_ns, duration_ns, session_id, pid, key, key || '=' || value FROM annotations WHERE ";
        let mut lanes: HashMap<(Pid, String), u32> = HashMap::new();
        self.reading.trace.each(&[SQL, HELD_IN].concat(), &self.reading.bounds(), |row| {
            let pid = self.hosts.pid(row.integer(2), row.number(3));
            let key = row.text(4).unwrap_or_default().into_owned();
            let next = lanes.len() as u32;
            let track = Track::Annotations { pid, lane: *lanes.entry((pid, key)).or_insert(next) };
            let start_ns = row.ns(0);
            let end_ns = row.integer(1).map_or(self.reading.span.to_ns, |ns| start_ns + ns.cast_unsigned());
            to.slice(&Slice::new(track, "annotation", &row.text(5).unwrap_or_default(), start_ns, end_ns))
        })
    }

    fn samples(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        const SQL: &str = "SELECT at_ns, name, device, unit, value FROM sample_values WHERE at_ns >= ? AND at_ns < ?";
        let [from, until, ..] = self.reading.bounds();
        self.reading.trace.each(SQL, &[from, until], |row| {
            let name = row.text(1).unwrap_or_default();
            let name = row.text(2).map_or_else(|| name.to_string(), |device| format!("{name} {device}"));
            let unit = row.text(3).unwrap_or_default();
            to.sample(&Sample { at_ns: row.ns(0), name: &name, unit: &unit, value: row.real(4).unwrap_or(0.0) })
        })
    }

    fn findings(&self, to: &mut dyn Draw) -> Result<(), ExportError> {
        self.export.asked.progress(0.9, "findings");
        let explanation = self.export.explanation()?;
        let steady = explanation.phases.iter().find(|phase| phase.name == PhaseName::Steady).map(Phase::span);
        for (number, finding) in explanation.findings.iter().enumerate() {
            let during = finding.during.or(steady).unwrap_or(self.reading.span);
            let line = line(finding);
            let mut details = Details::default();
            details.text("severity", Some(finding.severity.as_str()));
            details.text("summary", Some(&finding.summary));
            details.text("where", line.as_deref());
            details.text("fix", finding.fix.first().map(String::as_str));
            details.0.push(("share", Detail::Real(finding.impact.share)));
            details.0.push(("confidence", Detail::Real(finding.confidence)));
            let (track, name) = (Track::Finding { number: number as u32 + 1 }, finding.cause.as_str());
            let slice = Slice::new(track, "finding", name, during.from_ns, during.to_ns);
            to.slice(&Slice { details: &details.0, ..slice })?;
        }
        self.export.asked.progress(1.0, "done");
        Ok(())
    }

    fn far(&self, before: f64, part: f64, what: &'static str) -> Far<'_> {
        Far { drawing: self, before, part, what, rows: 0 }
    }
}

/// `train.py:66`, the first line that a finding names.
fn line(finding: &Finding) -> Option<String> {
    let place = finding.r#where.iter().find(|place| place.line.is_some())?;
    place.line.map(|line| format!("{}:{line}", place.file))
}

#[derive(Default)]
struct Details<'a>(Vec<(&'static str, Detail<'a>)>);

impl<'a> Details<'a> {
    fn text(&mut self, name: &'static str, text: Option<&'a str>) {
        self.0.extend(text.map(|text| (name, Detail::Text(text))));
    }

    /// Columns that are not empty.
    fn integers(&mut self, row: &Cells<'_>, columns: &[(&'static str, usize)]) {
        let known = columns.iter().filter_map(|&(name, at)| Some((name, Detail::Integer(row.integer(at)?))));
        self.0.extend(known);
    }
}

/// How far a table has been read, by the time of its rows.
struct Far<'a> {
    drawing: &'a Drawing<'a>,
    before: f64,
    part: f64,
    what: &'static str,
    rows: u64,
}

impl Far<'_> {
    fn at(&mut self, ns: u64) {
        if self.rows.is_multiple_of(ROWS) {
            let span = self.drawing.reading.span;
            let done = ns.saturating_sub(span.from_ns) as f64 / span.to_ns.saturating_sub(span.from_ns).max(1) as f64;
            self.drawing.export.asked.progress(self.before + self.part * done.min(1.0), self.what);
        }
        self.rows += 1;
    }
}
