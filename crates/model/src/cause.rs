//! The word for why a GPU waits.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Why a GPU waits: a word of the closed list that the rules of `analysis` declare. Other people's tools match on it.
///
/// A finding that was stored may have been made by another version, so that any word can be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Cause(Cow<'static, str>);

impl Cause {
    /// Marks the words in schemas, for those who know the list.
    pub const FORMAT: &'static str = "cause";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for Cause {
    fn from(word: &'static str) -> Self {
        Self(Cow::Borrowed(word))
    }
}

impl PartialEq<&str> for Cause {
    fn eq(&self, word: &&str) -> bool {
        self.0 == *word
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Cause {
    fn schema_name() -> Cow<'static, str> {
        "Cause".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": Self::FORMAT, "description": "Why a GPU waits, a word of a closed list."})
    }
}
