//! A trace as other tools read it.
//!
//! Rows are read one after the other and written at once, so that they take no memory; what is found in them does. To add a
//! format, write its file in `formats` and its line in [`FORMATS`].

mod formats;
mod stacks;
mod timeline;
mod views;

use std::io::{self, Write};

use gpuwhy_model::Explanation;
use gpuwhy_questions::questions::findings::Findings;
use gpuwhy_questions::questions::stacks::Of;
use gpuwhy_questions::{Ask, AskError, Asked, Part};
use gpuwhy_store::QueryError;
use thiserror::Error;

pub use views::{VIEWS, View};

use formats::{chrome, flamegraph, folded, ndjson, parquet, perfetto, pprof};

/// Every format there is.
pub const FORMATS: &[Format] = &[
    perfetto::FORMAT,
    chrome::FORMAT,
    flamegraph::FORMAT,
    folded::FORMAT,
    pprof::FORMAT,
    ndjson::FORMAT,
    parquet::FORMAT,
];

/// Where a format is written to.
pub type Out<'o> = dyn Write + Send + 'o;

pub struct Format {
    /// As a user names it.
    pub name: &'static str,
    /// What reads it.
    pub read_by: &'static str,
    /// How its files end, without a dot.
    pub extension: &'static str,
    pub holds: Holds,
    write: fn(&Export<'_>, &mut Out<'_>) -> Result<(), ExportError>,
}

/// How much of a trace there is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Everything,
    OneKindOfStacks,
    OneView,
}

impl Format {
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    pub fn write(&self, export: &Export<'_>, out: &mut Out<'_>) -> Result<(), ExportError> {
        (self.write)(export, out)?;
        Ok(out.flush()?)
    }
}

/// What is exported.
pub struct Export<'a> {
    pub asked: &'a Asked<'a>,
    pub part: &'a Part,
    /// Whose stacks, for formats that consist of them and hold one kind.
    pub stacks_of: Of,
    /// Which view, for formats that hold one.
    pub view: &'a View,
}

impl Export<'_> {
    fn explanation(&self) -> Result<Explanation, ExportError> {
        Ok(Findings { part: self.part.clone(), ..Findings::default() }.ask(self.asked)?)
    }
}

#[derive(Debug, Error)]
pub enum ExportError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the trace has no stacks of {of}")]
    NoStacks { of: &'static str },
    #[error("{0}")]
    Write(#[from] io::Error),
    #[error("{message}")]
    Failed { message: String },
}

impl From<QueryError> for ExportError {
    fn from(error: QueryError) -> Self {
        Self::Ask(error.into())
    }
}
