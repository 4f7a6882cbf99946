//! One file for each question. A new one is a file and a line in [`QUESTIONS`].

pub mod annotations;
pub mod audit;
pub mod calls;
pub mod check;
pub mod collectives;
pub mod compare;
pub mod coverage;
pub mod demo;
pub mod events;
pub mod findings;
pub mod memory;
pub mod off_cpu;
pub mod record;
pub mod slow_calls;
pub mod sql;
pub mod stacks;
pub mod summary;
pub mod tenants;
pub mod test_report;
pub mod timeline;
pub mod waits;

use crate::Question;

/// In the order in which somebody would ask them.
pub const QUESTIONS: &[Question] = &[
    Question::new::<findings::Findings>(),
    Question::new::<summary::Summary>(),
    Question::new::<waits::Waits>(),
    Question::new::<off_cpu::OffCpu>(),
    Question::new::<slow_calls::SlowCalls>(),
    Question::new::<calls::Calls>(),
    Question::new::<stacks::Stacks>(),
    Question::new::<memory::Memory>(),
    Question::new::<collectives::Collectives>(),
    Question::new::<tenants::Tenants>(),
    Question::new::<annotations::Annotations>(),
    Question::new::<timeline::Timeline>(),
    Question::new::<audit::Audit>(),
    Question::new::<record::Record>(),
    Question::new::<compare::Compare>(),
    Question::new::<coverage::Coverage>(),
    Question::new::<events::Events>(),
    Question::new::<sql::Sql>(),
    Question::new::<check::Check>(),
    Question::new::<demo::Demo>(),
    Question::new::<test_report::TestReport>(),
];
