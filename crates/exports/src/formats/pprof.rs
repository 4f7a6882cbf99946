//! Stacks of all kinds in one profile: time in slow calls, time blocked, and how often threads were seen running.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpuwhy_model::Frame;
use gpuwhy_questions::questions::stacks::Of;
use hashbrown::HashMap;
use prost::Message;

use crate::{Export, ExportError, Format, Holds, Out, stacks};

pub const FORMAT: Format = Format {
    name: "pprof",
    read_by: "go tool pprof, speedscope, Pyroscope",
    extension: "pb.gz",
    holds: Holds::Everything,
    write,
};

/// What a sample counts.
const KINDS: &[(Of, &str, &str)] = &[
    (Of::Waits, "blocked", "nanoseconds"),
    (Of::Calls, "slow_calls", "nanoseconds"),
    (Of::Running, "running", "samples"),
];

fn write(export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
    let reading = export.asked.read(export.part)?;
    let mut making = Making::default();
    making.text("");
    for &(_, kind, unit) in KINDS {
        let (r#type, unit) = (making.text(kind), making.text(unit));
        making.profile.sample_type.push(ValueType { r#type, unit });
    }
    for (at, &(of, ..)) in KINDS.iter().enumerate() {
        for time in stacks::of_kind(&reading, of)? {
            let Some(stack) = time.stack.as_ref().filter(|stack| !stack.frames.is_empty()) else { continue };
            let mut value = vec![0; KINDS.len()];
            value[at] = i64::try_from(if of == Of::Running { time.count } else { time.ns }).unwrap_or(i64::MAX);
            let location_id = stack.frames.iter().map(|frame| making.location(frame)).collect();
            making.profile.sample.push(Sample { location_id, value });
        }
    }
    let mut profile = making.profile;
    if profile.sample.is_empty() {
        return Err(ExportError::NoStacks { of: "any kind" });
    }
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    profile.time_nanos = signed(reading.span.from_ns);
    profile.duration_nanos = signed(reading.span.ns());
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&profile.encode_to_vec())?;
    packed.finish()?;
    Ok(())
}

#[derive(Default)]
struct Making {
    profile: Profile,
    texts: HashMap<String, i64>,
    /// By kind of code, file that holds it, function, source file and line.
    locations: HashMap<(i64, i64, i64, u32), u64>,
    functions: HashMap<(i64, i64), u64>,
    modules: HashMap<i64, u64>,
}

impl Making {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(&at) = self.texts.get(text) {
            return at;
        }
        let at = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), at);
        at
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        let module = self.text(frame.module.as_deref().unwrap_or_default());
        let name = match frame.function.is_empty() {
            true => format!("{}+{:#x}", frame.module.as_deref().unwrap_or(frame.kind.as_str()), frame.address),
            false => frame.function.clone(),
        };
        let (name, file) = (self.text(&name), self.text(frame.file.as_deref().unwrap_or_default()));
        let key = (module, name, file, frame.line.unwrap_or(0));
        if let Some(&id) = self.locations.get(&key) {
            return id;
        }
        let (function_id, mapping_id) = (self.function(name, file), self.mapping(module));
        let id = self.profile.location.len() as u64 + 1;
        let line = vec![Line { function_id, line: frame.line.unwrap_or(0).into() }];
        self.profile.location.push(Location { id, mapping_id, address: frame.address, line });
        self.locations.insert(key, id);
        id
    }

    fn function(&mut self, name: i64, filename: i64) -> u64 {
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(Function { id, name, system_name: name, filename });
        }
        id
    }

    /// 0 where no file holds the code.
    fn mapping(&mut self, filename: i64) -> u64 {
        if filename == 0 {
            return 0;
        }
        let next = self.profile.mapping.len() as u64 + 1;
        let id = *self.modules.entry(filename).or_insert(next);
        if id == next {
            self.profile.mapping.push(Mapping { id, filename, has_functions: true });
        }
        id
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

/// Texts are places in the table of them.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
