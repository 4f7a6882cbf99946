//! One file for each question. A new one is a file and a line in [`QUESTIONS`].

pub mod check;
pub mod demo;
pub mod findings;
pub mod slow_calls;
pub mod sql;

use crate::Question;

/// In the order in which somebody would ask them.
pub const QUESTIONS: &[Question] = &[
    Question::of::<findings::Findings>(),
    Question::of::<slow_calls::SlowCalls>(),
    Question::of::<sql::Sql>(),
    Question::of::<check::Check>(),
    Question::of::<demo::Demo>(),
];
