//! What one can ask of a trace. A question is a file: a struct of parameters whose doc comments are its help, its JSON
//! schema and its documentation, and a function from them to an answer. Every door (terminal, MCP, HTTP, dashboard)
//! offers [`QUESTIONS`] and nothing else.
//!
//! | module | what it is |
//! |---|---|
//! | [`questions`] | one file for each question |
//! | [`fleet`] | the same for clusters |
//! | `question` | what a question is made of, and how it is asked with parameters as JSON |
//! | `asked` | what it is asked of: the traces, the host, limits, whether anybody still waits for the answer |
//! | `reading` | a part of a trace that is being read: typed rows of guarded statements |
//! | `parameters` | what many questions have in common: which part of which trace, how much of the answer |
//! | `basis` | what an answer is based on: its span, what was lost or sampled |
//! | `kept` | how many calls have a record, of all that were made |
//! | [`cited_records`] | what a finding's chain cites, with whose it is |
//! | [`folded`] | stacks as lines of text, for flame graphs |
//! | [`text`] | words of traced programs, made harmless |
//! | [`units`] | durations, moments, sizes and counts, as people write and read them |

mod asked;
mod basis;
mod cited;
mod cited_records;
mod error;
pub mod fleet;
mod folded;
mod host;
mod kept;
mod parameters;
mod question;
pub mod questions;
mod reading;
pub mod text;
pub mod units;

pub use asked::{Asked, Bulk, Control, Progress, Traces};
pub use basis::Basis;
pub use cited_records::{Cited, CitedProcess, CitedRecord, cited_records};
pub use error::AskError;
pub use fleet::{FLEET_QUESTIONS, Granted};
pub use folded::folded;
pub use host::{Host, NoHost};
pub use kept::Kept;
pub use parameters::{Length, Moment, Paging, Part};
pub use question::{Ask, Question, answer_schemas, find, parameters_of};
pub use questions::QUESTIONS;
pub use reading::Reading;
