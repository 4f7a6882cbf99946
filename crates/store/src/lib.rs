//! The trace file: one SQLite file that a tracer writes and anybody reads.
//!
//! [`Writer`] is the only way in, [`Trace`] the only way out. Times come in as arguments; the only clock read
//! here is the one that stops a query. Strings from traced programs are values, never part of a statement.

mod answer;
#[cfg(feature = "apart")]
pub mod apart;
mod cells;
mod copy;
mod each;
mod error;
mod explanations;
mod filter;
mod functions;
mod guard;
mod lock;
mod merge;
mod older;
mod reader;
mod schema;
mod spans;
mod stack_times;
mod window;
mod writer;

pub use answer::{Answer, Limits, Truncation, Value};
pub use each::Cells;
pub use error::{QueryError, StoreError};
pub use explanations::{KeptExplanation, keep_explanation};
pub use filter::Filter;
pub use guard::Guard;
pub use merge::{Part, merge};
pub use reader::Trace;
pub use schema::{
    APPLICATION_ID, SCHEMA_VERSION, Table, describe, describing_tables, schema_markdown, table_markdown, view_columns,
};
pub use spans::{CallSpan, WaitSpan};
pub use stack_times::{StackSum, StackSums, StackTime, StackTimes, StacksOf};
pub use writer::{Options, Writer};
