//! What many questions have in common: which part of which trace, and how much of the answer.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use gpuwhy_store::{Limits, Trace, Value};
use gpuwhy_window::Scope;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::AskError;
use crate::questions::annotations;
use crate::units::{parse_duration, parse_moment};

/// Which part of which trace.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Part {
    /// The trace, by its file's name, where there are several [default: the first].
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub trace: Option<String>,
    /// Only the last part of the trace: 30s, 5m, 2h, counted back from its end.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "to"])]
    #[serde(default)]
    pub since: Option<Length>,
    /// Only from this moment on: 2026-01-31T12:00:00Z, a time of today, or nanoseconds since 1970.
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub from: Option<Moment>,
    /// Only up to this moment.
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub to: Option<Moment>,
    /// Only this process.
    #[arg(long)]
    #[serde(default)]
    pub pid: Option<u32>,
    /// Only from the first moment to the last at which this annotation held: step=12.
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["since", "from", "to"])]
    #[serde(default)]
    pub label: Option<String>,
}

/// When an annotation held.
const HELD: &str = "SELECT min(timestamp_ns), max(timestamp_ns + coalesce(duration_ns, ?1 - timestamp_ns))
    FROM annotations WHERE key = ?2 AND value = ?3";

impl Part {
    pub fn scope(&self, trace: &Trace) -> Result<Scope, AskError> {
        let (mut from_ns, to_ns) = (self.from.map(|from| from.0), self.to.map(|to| to.0));
        if let (Some(from), Some(to)) = (from_ns, to_ns)
            && from >= to
        {
            return Err(AskError::parameter("from", "it is not before `to`"));
        }
        if let Some(since) = self.since {
            if from_ns.is_some() || to_ns.is_some() {
                return Err(AskError::parameter("since", "it cannot be used with `from` or `to`"));
            }
            from_ns = trace.end_ns()?.map(|end_ns| end_ns.saturating_sub(since.ns()));
        }
        if let Some(label) = &self.label {
            if from_ns.is_some() || to_ns.is_some() {
                return Err(AskError::parameter("label", "it cannot be used with `since`, `from` or `to`"));
            }
            let (from, to) = held(trace, label)?;
            return Ok(Scope { from_ns: Some(from), to_ns: Some(to), pid: self.pid });
        }
        Ok(Scope { from_ns, to_ns, pid: self.pid })
    }
}

fn held(trace: &Trace, label: &str) -> Result<(u64, u64), AskError> {
    let wrong = |why: &str| AskError::parameter("label", why);
    let (key, value) = label.split_once('=').ok_or_else(|| wrong("it is a key and a value: step=12"))?;
    if trace.version() < annotations::SINCE {
        return Err(wrong("the file is of an earlier version, without annotations"));
    }
    let end_ns = Value::Integer(trace.end_ns()?.unwrap_or(0).cast_signed());
    let values = [end_ns, Value::Text(key.to_owned()), Value::Text(value.to_owned())];
    let rows = trace.query_with(HELD, &values, &Limits::default())?.rows;
    match rows.first().map(Vec::as_slice) {
        Some(&[Value::Integer(from), Value::Integer(to)]) => {
            Ok((from.cast_unsigned(), to.max(from + 1).cast_unsigned()))
        }
        _ => Err(wrong("nobody has put it on the timeline; `ask annotations` lists what there is")),
    }
}

/// How much of a long answer.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Paging {
    /// The most rows to return [default: 50].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[schemars(range(min = 1, max = 1000))]
    #[serde(default)]
    pub limit: Option<u32>,
    /// Where to go on: the `next` of the answer before.
    #[arg(long, value_name = "NEXT")]
    #[serde(default)]
    pub after: Option<String>,
}

impl Paging {
    const DEFAULT: u32 = 50;
    const MOST: u32 = 1000;

    pub fn limit(&self) -> Result<usize, AskError> {
        match self.limit.unwrap_or(Self::DEFAULT) {
            limit @ 1..=Self::MOST => Ok(limit as usize),
            _ => Err(AskError::parameter("limit", format_args!("it is from 1 to {}", Self::MOST))),
        }
    }

    /// How many rows came before, for answers that are in an order of their own.
    pub fn offset(&self) -> Result<usize, AskError> {
        Ok(self.after_number()?.unwrap_or(0) as usize)
    }

    /// The last row's number, for answers in the order of numbers that only grow.
    pub fn after_number(&self) -> Result<Option<i64>, AskError> {
        let number = |text: &String| text.parse().ok().filter(|number| *number >= 0);
        match &self.after {
            None => Ok(None),
            Some(text) => match number(text) {
                Some(number) => Ok(Some(number)),
                None => Err(AskError::parameter("after", "it is not the `next` of an answer")),
            },
        }
    }

    /// Cuts rows that were asked for with one more than the limit. What is returned is the next answer's `after`.
    pub fn cut<T>(&self, rows: &mut Vec<T>) -> Result<Option<String>, AskError> {
        let (limit, offset) = (self.limit()?, self.offset()?);
        let is_more = rows.len() > limit;
        rows.truncate(limit);
        Ok(is_more.then(|| (offset + limit).to_string()))
    }
}

/// A length of time, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length(pub Duration);

impl Length {
    pub fn ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A moment in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub u64);

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_moment(text).map(Self)
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}ns", self.0.as_nanos()))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber { expected: "a length of time such as 30s", number: |_| None })
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a moment: nanoseconds since 1970, or 2026-01-31T12:00:00Z";
        deserializer.deserialize_any(TextOrNumber { expected, number: |ns| Some(Self(ns)) })
    }
}

struct TextOrNumber<T> {
    expected: &'static str,
    number: fn(u64) -> Option<T>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for TextOrNumber<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.number)(number).ok_or_else(|| E::invalid_type(de::Unexpected::Unsigned(number), &self.expected))
    }
}

impl JsonSchema for Length {
    fn schema_name() -> Cow<'static, str> {
        "Length".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|min|h|d)?$"})
    }
}

impl JsonSchema for Moment {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}]})
    }
}
