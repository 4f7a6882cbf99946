//! The JSON of Chrome's tracing tools. Times count from the first moment of the trace, which `otherData` names: the tools read
//! numbers with 53 bits.

use std::io::Write;

use hashbrown::HashSet;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::json;

use crate::timeline::{self, Detail, Draw, Pid, Process, Sample, Slice, Thread, Track};
use crate::{Export, ExportError, Format, Holds, Out};

pub const FORMAT: Format = Format {
    name: "chrome",
    read_by: "chrome://tracing, ui.perfetto.dev, speedscope",
    extension: "json",
    holds: Holds::Everything,
    write,
};

/// Findings stand in a process of their own, which no other has the number of.
const FINDINGS: u32 = 0;

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let start_ns = export.asked.read(export.part)?.span.from_ns;
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"start_ns\":\"{start_ns}\"}},\"traceEvents\":[")?;
    let mut drawn = Chrome { out, start_ns, has_events: false, tracks: HashSet::new() };
    timeline::draw(export, &mut drawn)?;
    Ok(writeln!(drawn.out, "\n]}}")?)
}

struct Chrome<'w> {
    out: &'w mut dyn Write,
    start_ns: u64,
    has_events: bool,
    tracks: HashSet<Track>,
}

#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    name: &'a str,
    cat: &'a str,
    args: Details<'a>,
}

struct Details<'a>(&'a [(&'static str, Detail<'a>)]);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, detail) in self.0 {
            match detail {
                Detail::Integer(number) => map.serialize_entry(name, number)?,
                Detail::Real(number) => map.serialize_entry(name, number)?,
                Detail::Text(text) => map.serialize_entry(name, text)?,
            }
        }
        map.end()
    }
}

impl Draw for Chrome<'_> {
    fn process(&mut self, process: &Process<'_>) -> Result<(), ExportError> {
        self.name("process_name", process.pid.number(), 0, &process.name)
    }

    fn thread(&mut self, thread: &Thread<'_>) -> Result<(), ExportError> {
        self.name("thread_name", thread.pid.number(), thread.tid, thread.name)
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), ExportError> {
        let (pid, tid) = self.known(slice.track)?;
        // An arrow needs something to begin and to end in.
        let least_ns = u64::from(slice.begins.or(slice.ends).is_some());
        let ns = slice.end_ns.saturating_sub(slice.start_ns).max(least_ns);
        let (ts, dur) = (self.us(slice.start_ns), ns as f64 / 1000.0);
        let (name, cat) = (slice.name, slice.category);
        self.event(&Event { ph: "X", pid, tid, ts, dur: Some(dur), name, cat, args: Details(slice.details) })?;
        for (id, ph) in [(slice.begins, "s"), (slice.ends, "f")] {
            if let Some(id) = id {
                let id = format!("{id:#x}");
                let arrow = json!({"ph": ph, "id": id, "pid": pid, "tid": tid, "ts": ts, "bp": "e",
                    "name": "leads to", "cat": "arrow"});
                self.event(&arrow)?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), ExportError> {
        let series = if sample.unit.is_empty() { "value" } else { sample.unit };
        let ts = self.us(sample.at_ns);
        self.event(&json!({"ph": "C", "pid": FINDINGS, "ts": ts, "name": sample.name, "args": {series: sample.value}}))
    }
}

impl Chrome<'_> {
    fn us(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.start_ns) as f64 / 1000.0
    }

    fn event(&mut self, event: &impl Serialize) -> Result<(), ExportError> {
        self.out.write_all(if self.has_events { b",\n" } else { b"\n" })?;
        self.has_events = true;
        serde_json::to_writer(&mut *self.out, event).map_err(|error| ExportError::Write(error.into()))
    }

    fn name(&mut self, what: &str, pid: u32, tid: u32, name: &str) -> Result<(), ExportError> {
        // Not all names are known, and Perfetto takes an empty one for a mistake.
        if name.is_empty() {
            return Ok(());
        }
        self.event(&json!({"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}))
    }

    /// Names a track when something is first put on it; threads have their names.
    fn known(&mut self, track: Track) -> Result<(u32, u32), ExportError> {
        let (pid, tid) = place(track);
        if self.tracks.insert(track) {
            match track {
                Track::Calls { .. } => {}
                Track::Waits { tid: of, .. } => self.name("thread_name", pid, tid, &format!("{of} waits"))?,
                Track::Collectives { .. } => self.name("thread_name", pid, tid, "collectives")?,
                Track::Annotations { .. } => self.name("thread_name", pid, tid, "annotations")?,
                Track::Finding { number } => {
                    self.name("process_name", pid, 0, "gpuwhy")?;
                    self.name("thread_name", pid, tid, &format!("finding {number}"))?;
                }
            }
        }
        Ok((pid, tid))
    }
}

/// Whose row: what is no thread has a number that no thread has.
fn place(track: Track) -> (u32, u32) {
    let number = |pid: Pid| pid.number();
    match track {
        Track::Calls { pid, tid } => (number(pid), tid),
        Track::Waits { pid, tid } => (number(pid), tid.saturating_add(10_000_000)),
        Track::Collectives { pid, lane } => (number(pid), lane.saturating_add(20_000_000)),
        Track::Annotations { pid, lane } => (number(pid), lane.saturating_add(30_000_000)),
        Track::Finding { number } => (FINDINGS, number),
    }
}
