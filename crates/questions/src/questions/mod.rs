//! One file for each question. A new one is a file and a line in [`QUESTIONS`].

pub mod check;
pub mod coverage;
pub mod demo;
pub mod findings;
pub mod memory;
pub mod off_cpu;
pub mod slow_calls;
pub mod sql;
pub mod stacks;
pub mod waits;

use crate::Question;

/// In the order in which somebody would ask them.
pub const QUESTIONS: &[Question] = &[
    Question::of::<findings::Findings>(),
    Question::of::<waits::Waits>(),
    Question::of::<slow_calls::SlowCalls>(),
    Question::of::<off_cpu::OffCpu>(),
    Question::of::<stacks::Stacks>(),
    Question::of::<memory::Memory>(),
    Question::of::<coverage::Coverage>(),
    Question::of::<sql::Sql>(),
    Question::of::<check::Check>(),
    Question::of::<demo::Demo>(),
];
