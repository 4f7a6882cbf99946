//! One file for each question. A new one is a file and a line in [`QUESTIONS`].

pub mod audit;
pub mod calls;
pub mod check;
pub mod compare;
pub mod coverage;
pub mod demo;
pub mod findings;
pub mod memory;
pub mod off_cpu;
pub mod record;
pub mod slow_calls;
pub mod sql;
pub mod stacks;
pub mod summary;
pub mod test_report;
pub mod timeline;
pub mod waits;

use crate::Question;

/// In the order in which somebody would ask them.
pub const QUESTIONS: &[Question] = &[
    Question::of::<findings::Findings>(),
    Question::of::<summary::Summary>(),
    Question::of::<waits::Waits>(),
    Question::of::<off_cpu::OffCpu>(),
    Question::of::<slow_calls::SlowCalls>(),
    Question::of::<calls::Calls>(),
    Question::of::<stacks::Stacks>(),
    Question::of::<memory::Memory>(),
    Question::of::<timeline::Timeline>(),
    Question::of::<audit::Audit>(),
    Question::of::<record::Record>(),
    Question::of::<compare::Compare>(),
    Question::of::<coverage::Coverage>(),
    Question::of::<sql::Sql>(),
    Question::of::<check::Check>(),
    Question::of::<demo::Demo>(),
    Question::of::<test_report::TestReport>(),
];
