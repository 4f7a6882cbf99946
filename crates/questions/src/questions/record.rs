use std::collections::BTreeMap;

use clap::Args;
use gpuwhy_model::{NoReference, RecordKind, Reference};
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::sql::Cell;
use crate::reading::Reading;
use crate::{Ask, AskError, Asked, Part};

/// One record in full, as findings cite it: a call (`cuda:ID`), a wait (`sched:ID`), work of the kernel (`kernel:ID`) or
/// a request to a disk (`io:ID`). With its stack, innermost frame first, and for a wait what its waker was doing.
#[derive(Args, Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct Record {
    /// The record, as `ref` or `refs` of other answers name it.
    #[arg(value_name = "REF")]
    #[schemars(regex(pattern = Reference::pattern()))]
    pub r#ref: String,
    /// The trace, by its file's name, where there are several [default: the first].
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub trace: Option<String>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct FullRecord {
    /// The trace, by its file's name.
    pub trace: String,
    pub r#ref: Reference,
    /// The view of the trace that it is a row of.
    pub view: String,
    /// All that is known of it, under the names that `docs/schema.md` describes. Handles and addresses are hexadecimal
    /// digits.
    #[schemars(with = "BTreeMap<String, Cell>")]
    pub record: Map<String, serde_json::Value>,
    /// Where in the program it happened, if its stack was taken.
    pub stack: Option<Stack>,
    /// What the thread that ended a wait was doing.
    pub waker_stack: Option<Stack>,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Stack {
    /// How the walk over it ended; absent where its frames are not known by name.
    pub end: Option<String>,
    pub python_end: Option<String>,
    /// The frame that a person wants to see first: its position.
    pub site: Option<u32>,
    /// Innermost first.
    pub frames: Vec<RecordFrame>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct RecordFrame {
    /// `python`, `native`, `jit` or `kernel`.
    pub kind: String,
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub module: Option<String>,
    pub address: String,
    #[serde(deserialize_with = "is_one")]
    pub is_inlined: bool,
}

fn is_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(i64::deserialize(deserializer)? != 0)
}

/// They use all 64 bits, which a number in JSON does not have everywhere.
const HEXADECIMAL: &[&str] = &["stream", "handle", "address", "cgroup_id"];

const FRAMES: &str = "
SELECT kind, function, file, line, module, printf('0x%x', address) AS address, is_inlined FROM stack_lines
WHERE stack_id = ? ORDER BY position";

const STACK: &str = "
SELECT end, python_end,
  (SELECT min(position) FROM stack_frames WHERE stack_id = stacks.id AND frame_id = site_frame_id) AS site
FROM stacks WHERE id = ?";

impl Ask for Record {
    const NAME: &'static str = "record";

    type Answer = FullRecord;

    fn ask(&self, asked: &Asked<'_>) -> Result<FullRecord, AskError> {
        let (cited, id) = self.parsed()?;
        let view = cited.kind.view();
        let reading = asked.read(&Part { trace: self.trace.clone(), ..Part::default() })?;
        let found: Vec<Map<String, serde_json::Value>> =
            reading.select(&format!("SELECT * FROM {view} WHERE timestamp_ns = ?"), &[Value::Integer(id)])?;
        let missing = || AskError::NotFound { message: format!("the trace has no record {}", self.r#ref) };
        let mut record = found.into_iter().next().ok_or_else(missing)?;
        let mut stack = |column| taken(&mut record, column).map(|id| stack(&reading, id)).transpose();
        let (stack, waker_stack) = (stack("stack_id")?.flatten(), stack("waker_stack_id")?.flatten());
        make_safe(&mut record, cited.kind);
        let trace = reading.trace.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(FullRecord { trace, r#ref: cited, view, record, stack, waker_stack })
    }
}

impl Record {
    /// The reference, and the id of its record in the file.
    fn parsed(&self) -> Result<(Reference, i64), AskError> {
        let cited: Result<Reference, NoReference> = self.r#ref.parse();
        let id = |cited: Reference| i64::try_from(cited.start_ns).map(|id| (cited, id)).map_err(|_| NoReference);
        cited.and_then(id).map_err(|wrong| AskError::parameter("ref", wrong))
    }
}

fn taken(record: &mut Map<String, serde_json::Value>, column: &str) -> Option<i64> {
    record.shift_remove(column).and_then(|id| id.as_i64())
}

fn stack(reading: &Reading, id: i64) -> Result<Option<Stack>, AskError> {
    #[derive(Deserialize)]
    struct Walk {
        end: Option<String>,
        python_end: Option<String>,
        site: Option<u32>,
    }
    let walk: Option<Walk> = reading.select(STACK, &[Value::Integer(id)])?.into_iter().next();
    let Some(Walk { end, python_end, site }) = walk else { return Ok(None) };
    Ok(Some(Stack { end, python_end, site, frames: reading.select(FRAMES, &[Value::Integer(id)])? }))
}

/// What programs that read JSON would round becomes text.
fn make_safe(record: &mut Map<String, serde_json::Value>, kind: RecordKind) {
    record.shift_remove("id");
    if let Some(parent) = record.shift_remove("parent_id").and_then(|id| id.as_u64()) {
        record.insert("parent_ref".to_owned(), kind.at(parent).to_string().into());
    }
    for name in HEXADECIMAL {
        if let Some(value) = record.get_mut(*name)
            && let Some(bits) = value.as_i64()
        {
            *value = format!("{bits:#x}").into();
        }
    }
}
