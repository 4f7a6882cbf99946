//! One rule for each cause. A rule is a pure function of a window; its file's doc comment is its documentation.

mod alloc_churn;
mod alloc_failed;
mod blamed;
mod broken;
mod child_wait;
mod collective_hang;
mod cpu_preempted;
mod cpu_throttled;
mod driver_call;
mod fabric_error;
mod gil_wait;
mod gpu_busy;
mod gpu_fault;
mod gpu_starved;
mod gpu_throttled;
mod graph_recapture;
mod host_compute;
mod input_starved;
mod io_wait;
mod launch_bound;
mod lazy_load;
mod lock_wait;
mod memory_leak;
mod memory_reclaim;
mod net_wait;
mod oom_kill;
mod output_blocked;
mod page_fault;
mod pageable_copy;
mod straggler;
mod sufferers;
mod sync_storm;
mod takers;
mod tcp_retransmit;

use gpuwhy_model::{CallClass, Cause};

use crate::case::{JobCase, RestCase, ThreadCase, Verdict};
use crate::class::WaitClass;
use crate::gpu::Did;

/// All that is known of a cause. Words, order, documentation and schemas of every door follow from it.
pub struct Rule {
    /// The word that other people's tools match on. It is never changed.
    pub cause: &'static str,
    /// The cause in words for somebody who sees it for the first time.
    pub title: &'static str,
    /// The rule's source, whose doc comment is its page.
    pub page: &'static str,
    /// Calls that it is found in. Where not all of them were seen, "not found" says so.
    pub needs: &'static [CallClass],
    /// Causes that are superfluous once this one is found in the same process.
    pub explains_away: &'static [&'static str],
    /// Causes that say the same of the same line, or of none.
    pub explains_its_line: &'static [&'static str],
    /// What a thread does in the time that the cause takes; a GPU that is idle meanwhile is idle because of it.
    pub(crate) meanwhile: &'static [Did],
    /// False for what is as it should be and only explains.
    pub is_problem: bool,
    /// Whether nothing goes on once it is there: it comes before what else was found, also where a program did no work any more.
    pub is_the_end: bool,
    /// Whether a finding of low severity is usual on any machine, however much time it takes.
    pub is_usual_when_low: bool,
    pub(crate) check: Check,
}

impl Rule {
    /// A rule about a problem that explains nothing away.
    const fn new(cause: &'static str, title: &'static str, page: &'static str, check: Check) -> Self {
        Self {
            cause,
            title,
            page,
            needs: &[],
            explains_away: &[],
            explains_its_line: &[],
            meanwhile: &[],
            is_problem: true,
            is_the_end: false,
            is_usual_when_low: false,
            check,
        }
    }
}

/// What a thread does in the GPU's libraries.
const IN_CALLS: &[Did] = &[Did::Call, Did::Wait(WaitClass::InCall), Did::Wait(WaitClass::Gpu)];

#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// Asked about every thread that feeds a GPU.
    Thread(fn(&ThreadCase<'_, '_>) -> Verdict),
    /// Asked once.
    Job(fn(&JobCase<'_, '_>) -> Vec<Verdict>),
    /// Asked once, after all others, about what they leave.
    Rest(fn(&RestCase<'_, '_>) -> Vec<Verdict>),
}

/// Every rule. A new one is its file and its line here: its word joins the closed list of causes, and its title, its page
/// and what it explains away follow.
pub const RULES: &[Rule] = &[
    collective_hang::RULE,
    gpu_fault::RULE,
    gpu_throttled::RULE,
    fabric_error::RULE,
    straggler::RULE,
    cpu_preempted::RULE,
    cpu_throttled::RULE,
    lock_wait::RULE,
    gil_wait::RULE,
    io_wait::RULE,
    page_fault::RULE,
    memory_reclaim::RULE,
    tcp_retransmit::RULE,
    net_wait::RULE,
    input_starved::RULE,
    child_wait::RULE,
    output_blocked::RULE,
    host_compute::RULE,
    driver_call::RULE,
    gpu_busy::RULE,
    alloc_churn::RULE,
    alloc_failed::RULE,
    memory_leak::RULE,
    sync_storm::RULE,
    launch_bound::RULE,
    pageable_copy::RULE,
    lazy_load::RULE,
    graph_recapture::RULE,
    oom_kill::RULE,
    gpu_starved::RULE,
];

/// The rule for a cause. A cause of another version may have none.
pub(crate) fn find(cause: &Cause) -> Option<&'static Rule> {
    RULES.iter().find(|rule| *cause == rule.cause)
}

/// Where the rule for a cause stands in the list.
pub(crate) fn position(cause: &Cause) -> usize {
    RULES.iter().position(|rule| *cause == rule.cause).unwrap_or(RULES.len())
}

/// The advice of a rule as a finding carries it.
fn advice(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
