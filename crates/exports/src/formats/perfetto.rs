//! Perfetto's own format: a protobuf of packets, each written as soon as it is known. Names are sent once and cited by number.

mod packets;

use std::io::Write;

use hashbrown::{HashMap, HashSet};
use prost::Message;

use crate::timeline::{self, Detail, Draw, Pid, Process, Sample, Slice, Thread, Track};
use crate::{Export, ExportError, Format, Holds, Out};
use packets::*;

pub const FORMAT: Format = Format {
    name: "perfetto",
    read_by: "ui.perfetto.dev, trace_processor",
    extension: "pftrace",
    holds: Holds::Everything,
    write,
};

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let mut drawn = Perfetto {
        out,
        has_begun: false,
        names: Numbers::default(),
        categories: Numbers::default(),
        details: Numbers::default(),
        tracks: HashSet::new(),
    };
    timeline::draw(export, &mut drawn)
}

struct Perfetto<'w> {
    out: &'w mut dyn Write,
    has_begun: bool,
    names: Numbers,
    categories: Numbers,
    details: Numbers,
    /// Those that were told of.
    tracks: HashSet<u64>,
}

/// What each text is cited by.
#[derive(Default)]
struct Numbers(HashMap<String, u64>);

impl Numbers {
    fn cite(&mut self, text: &str, news: &mut Vec<Interned>) -> u64 {
        if let Some(&number) = self.0.get(text) {
            return number;
        }
        let number = self.0.len() as u64 + 1;
        self.0.insert(text.to_owned(), number);
        news.push(Interned { iid: number, name: text.to_owned() });
        number
    }
}

/// All packets are of one sequence, whose state is kept from the first one on.
const SEQUENCE: u32 = 1;

/// Text of traced programs may be all different: so many are sent once, the others each time.
const MOST_NAMES: usize = 100_000;

impl Draw for Perfetto<'_> {
    fn process(&mut self, process: &Process<'_>) -> Result<(), ExportError> {
        self.tracks.insert(process_track(process.pid));
        self.describe(TrackDescriptor {
            uuid: process_track(process.pid),
            process: Some(ProcessDescriptor {
                pid: number(process.pid.number()),
                cmdline: vec![process.command.to_owned()],
                process_name: process.name.clone(),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn thread(&mut self, thread: &Thread<'_>) -> Result<(), ExportError> {
        let uuid = uuid_of(Track::Calls { pid: thread.pid, tid: thread.tid });
        self.tracks.insert(uuid);
        self.describe(TrackDescriptor {
            uuid,
            parent_uuid: Some(process_track(thread.pid)),
            thread: Some(ThreadDescriptor {
                pid: number(thread.pid.number()),
                tid: number(thread.tid),
                thread_name: thread.name.to_owned(),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), ExportError> {
        let track_uuid = self.known(slice.track)?;
        let mut news = InternedData::default();
        let detail = |(name, detail): &(&'static str, Detail<'_>)| {
            let name_iid = self.details.cite(name, &mut news.debug_annotation_names);
            match *detail {
                Detail::Integer(value) => DebugAnnotation { name_iid, int_value: Some(value), ..Default::default() },
                Detail::Real(value) => DebugAnnotation { name_iid, double_value: Some(value), ..Default::default() },
                Detail::Text(text) => {
                    DebugAnnotation { name_iid, string_value: Some(text.to_owned()), ..Default::default() }
                }
            }
        };
        let debug_annotations = slice.details.iter().map(detail).collect();
        let category = self.categories.cite(slice.category, &mut news.event_categories);
        let is_cited = self.names.0.len() < MOST_NAMES || self.names.0.contains_key(slice.name);
        let name_iid = is_cited.then(|| self.names.cite(slice.name, &mut news.event_names));
        let is_moment = slice.end_ns <= slice.start_ns;
        let event = TrackEvent {
            r#type: Some(if is_moment { INSTANT } else { SLICE_BEGIN }),
            track_uuid: Some(track_uuid),
            category_iids: vec![category],
            name_iid,
            name: (!is_cited).then(|| slice.name.to_owned()),
            debug_annotations,
            flow_ids: slice.begins.into_iter().collect(),
            terminating_flow_ids: slice.ends.into_iter().collect(),
            ..TrackEvent::default()
        };
        let has_news = news != InternedData::default();
        self.packet(TracePacket {
            timestamp: Some(slice.start_ns),
            track_event: Some(event),
            interned_data: has_news.then_some(news),
            ..TracePacket::default()
        })?;
        if is_moment {
            return Ok(());
        }
        let end = TrackEvent { r#type: Some(SLICE_END), track_uuid: Some(track_uuid), ..TrackEvent::default() };
        self.packet(TracePacket { timestamp: Some(slice.end_ns), track_event: Some(end), ..TracePacket::default() })
    }

    fn sample(&mut self, sample: &Sample<'_>) -> Result<(), ExportError> {
        let uuid = COUNTER | hash(sample.name);
        if self.tracks.insert(uuid) {
            let counter = CounterDescriptor { unit_name: Some(sample.unit.to_owned()) };
            let name = Some(sample.name.to_owned());
            self.describe(TrackDescriptor { uuid, name, counter: Some(counter), ..TrackDescriptor::default() })?;
        }
        let event = TrackEvent {
            r#type: Some(COUNTER_VALUE),
            track_uuid: Some(uuid),
            double_counter_value: Some(sample.value),
            ..TrackEvent::default()
        };
        self.packet(TracePacket { timestamp: Some(sample.at_ns), track_event: Some(event), ..TracePacket::default() })
    }
}

impl Perfetto<'_> {
    /// Tells of a track when something is first put on it.
    fn known(&mut self, track: Track) -> Result<u64, ExportError> {
        let uuid = uuid_of(track);
        if !self.tracks.insert(uuid) {
            return Ok(uuid);
        }
        let (name, parent_uuid) = match track {
            // Nothing else is known of the thread.
            Track::Calls { tid, .. } => (tid.to_string(), None),
            Track::Waits { pid, tid } => ("waits".to_owned(), Some(uuid_of(Track::Calls { pid, tid }))),
            Track::Collectives { pid, .. } => ("collectives".to_owned(), Some(process_track(pid))),
            Track::Annotations { pid, .. } => {
                ("annotations".to_owned(), Some(process_track(pid)).filter(|_| pid.pid != 0))
            }
            Track::Finding { number } => (format!("gpuwhy finding {number}"), None),
        };
        self.describe(TrackDescriptor { uuid, parent_uuid, name: Some(name), ..TrackDescriptor::default() })?;
        Ok(uuid)
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> Result<(), ExportError> {
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })
    }

    fn packet(&mut self, mut packet: TracePacket) -> Result<(), ExportError> {
        packet.trusted_packet_sequence_id = Some(SEQUENCE);
        packet.sequence_flags = Some(if self.has_begun { NEEDS_STATE } else { STATE_CLEARED | NEEDS_STATE });
        self.has_begun = true;
        self.out.write_all(&[PACKET])?;
        Ok(self.out.write_all(&packet.encode_length_delimited_to_vec())?)
    }
}

const CALLS: u64 = 1 << 60;
const WAITS: u64 = 2 << 60;
const COLLECTIVES: u64 = 3 << 60;
const FINDING: u64 = 4 << 60;
const PROCESS: u64 = 5 << 60;
const COUNTER: u64 = 6 << 60;
const ANNOTATIONS: u64 = 7 << 60;

/// Process and thread ids have at most 22 bits.
fn uuid_of(track: Track) -> u64 {
    let within = |pid: Pid, one: u32| u64::from(pid.host) << 48 | u64::from(pid.pid) << 24 | u64::from(one);
    match track {
        Track::Calls { pid, tid } => CALLS | within(pid, tid),
        Track::Waits { pid, tid } => WAITS | within(pid, tid),
        Track::Collectives { pid, lane } => COLLECTIVES | within(pid, lane),
        Track::Annotations { pid, lane } => ANNOTATIONS | within(pid, lane),
        Track::Finding { number } => FINDING | u64::from(number),
    }
}

fn process_track(pid: Pid) -> u64 {
    PROCESS | u64::from(pid.number())
}

fn hash(text: &str) -> u64 {
    // FNV-1a, so that the same trace gives the same file.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step) >> 4
}

fn number(id: u32) -> i32 {
    i32::try_from(id).unwrap_or(i32::MAX)
}
