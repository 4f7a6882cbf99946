//! How records are cited: `cuda:1790000000000000000` is the call that started then.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::words;
use crate::{Call, IoRequest, KernelWork, Stretch};

words! {
    /// What kind of record is cited. Each kind has a view in the trace file.
    RecordKind {
        /// A call into a GPU library.
        Cuda = "cuda",
        /// A stretch of time off the CPU.
        Sched = "sched",
        /// Work that the kernel did in a thread's own time.
        Kernel = "kernel",
        /// A request to a disk.
        Io = "io",
    }
}

impl RecordKind {
    /// The view in the trace file whose rows these are.
    pub fn view(self) -> String {
        format!("{self}_events")
    }

    /// The record of this kind that started then.
    pub fn at(self, start_ns: u64) -> Reference {
        Reference { kind: self, start_ns }
    }
}

/// Names one record of a trace: no two of a kind start at the same nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub kind: RecordKind,
    pub start_ns: u64,
}

impl Reference {
    /// A regular expression for the text of every reference.
    pub fn pattern() -> String {
        let kinds: Vec<&str> = RecordKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("^({}):[0-9]+$", kinds.join("|"))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.start_ns)
    }
}

/// What was said in place of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoReference;

impl fmt::Display for NoReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms: Vec<String> = RecordKind::ALL.iter().map(|kind| format!("{kind}:ID")).collect();
        match forms.split_last() {
            Some((last, others)) => write!(f, "it is {} or {last}", others.join(", ")),
            None => f.write_str("there are no records"),
        }
    }
}

impl std::error::Error for NoReference {}

impl FromStr for Reference {
    type Err = NoReference;

    fn from_str(text: &str) -> Result<Self, NoReference> {
        let (word, digits) = text.split_once(':').ok_or(NoReference)?;
        let kind = RecordKind::ALL.iter().copied().find(|kind| kind.as_str() == word).ok_or(NoReference)?;
        let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
        let start_ns = digits.parse().ok().filter(|_| is_number).ok_or(NoReference)?;
        Ok(kind.at(start_ns))
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A text, to whoever reads JSON.
impl JsonSchema for Reference {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reference".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl Call {
    pub fn reference(&self) -> Reference {
        RecordKind::Cuda.at(self.start_ns)
    }
}

impl Stretch {
    pub fn reference(&self) -> Reference {
        RecordKind::Sched.at(self.start_ns)
    }
}

impl KernelWork {
    pub fn reference(&self) -> Reference {
        RecordKind::Kernel.at(self.start_ns)
    }
}

impl IoRequest {
    pub fn reference(&self) -> Reference {
        RecordKind::Io.at(self.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_back_as_it_was_printed() {
        for &kind in RecordKind::ALL {
            for start_ns in [0, 1_790_000_000_000_000_000, u64::MAX] {
                assert_eq!(kind.at(start_ns).to_string().parse(), Ok(kind.at(start_ns)));
            }
        }
        assert_eq!(RecordKind::Cuda.at(7).to_string(), "cuda:7");
        assert_eq!(RecordKind::Io.view(), "io_events");
    }

    #[test]
    fn what_is_no_reference_says_what_one_looks_like() {
        for text in
            ["", "cuda", "cuda:", ":5", "cuda:-5", "cuda:+5", "cuda: 5", "tcp:5", "CUDA:5", "cuda:99999999999999999999"]
        {
            assert_eq!(text.parse::<Reference>(), Err(NoReference), "{text}");
        }
        assert_eq!(NoReference.to_string(), "it is cuda:ID, sched:ID, kernel:ID or io:ID");
        assert_eq!(Reference::pattern(), "^(cuda|sched|kernel|io):[0-9]+$");
    }
}
