use clap::Args;
use gpuwhy_model::UnixNs;
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// What programs and people have put on the timeline (`gpuwhy annotate`), a step, an epoch or a request: how long each one
/// took, and how long those of a kind usually do. A part of the trace is chosen by it with `label`, in every question.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Annotations {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
    /// Only those with this key.
    #[arg(long)]
    #[serde(default)]
    pub key: Option<String>,
    /// The longest first, not the earliest.
    #[arg(long)]
    #[serde(default)]
    pub longest: bool,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Annotated {
    #[serde(flatten)]
    pub basis: Basis,
    /// One for each key, those that were told most often first.
    pub keys: Vec<AnnotationKey>,
    /// The earliest or the longest first.
    pub annotations: Vec<AnnotationSpan>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AnnotationKey {
    pub key: String,
    pub count: u64,
    /// Of those that have ended.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub longest_ns: Option<u64>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct AnnotationSpan {
    #[schemars(with = "UnixNs")]
    pub timestamp_ns: u64,
    /// How long it held; null where it holds until the end.
    pub duration_ns: Option<u64>,
    pub key: String,
    pub value: String,
    /// The process that it is about; null for all of them.
    pub pid: Option<u32>,
    /// The process's name, if calls of it were traced.
    pub comm: Option<String>,
}

/// The version in which they came to be.
pub const SINCE: u32 = 9;

/// Whether an annotation held in the part between [`bounds`](crate::Reading::bounds), and is about its process.
pub const HELD_IN: &str = "coalesce(timestamp_ns + duration_ns, ?2) > ?1 AND timestamp_ns < ?2
  AND (?3 IS NULL OR pid IS NULL OR pid = ?4)";

const KEYS: &str = "
SELECT key, count(*) AS count, percentile_ns(histogram_of(duration_ns), 0.5) AS p50_ns,
  percentile_ns(histogram_of(duration_ns), 0.99) AS p99_ns, max(duration_ns) AS longest_ns
FROM annotations WHERE ";
const BY_KEY: &str = " GROUP BY key ORDER BY count(*) DESC, key LIMIT 100";

const SPANS: &str = "
SELECT timestamp_ns, duration_ns, key, value, pid, comm FROM annotations WHERE ";
const IN_ORDER: &str = " AND (?5 IS NULL OR key = ?5)
ORDER BY CASE WHEN ?6 THEN -coalesce(duration_ns, 0) END, timestamp_ns, key LIMIT ?7 OFFSET ?8";

impl Ask for Annotations {
    const NAME: &'static str = "annotations";

    type Answer = Annotated;

    fn ask(&self, asked: &Asked<'_>) -> Result<Annotated, AskError> {
        let reading = asked.read(&self.part)?;
        let mut basis = Basis::read(&reading)?;
        if reading.trace.version() < SINCE {
            basis.coverage.unattached.push("the file is of an earlier version, without annotations".to_owned());
            return Ok(Annotated { basis, keys: Vec::new(), annotations: Vec::new(), next: None });
        }
        let key = self.key.clone().map_or(Value::Null, Value::Text);
        let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
        let longest = Value::Integer(self.longest.into());
        let keys = reading.select(&[KEYS, HELD_IN, BY_KEY].concat(), &reading.bounds())?;
        let values = [&reading.bounds()[..], &[key, longest], &page].concat();
        let mut annotations = reading.select(&[SPANS, HELD_IN, IN_ORDER].concat(), &values)?;
        let next = self.paging.cut(&mut annotations)?;
        Ok(Annotated { basis, keys, annotations, next })
    }
}
