//! One rule for each cause. A rule is a pure function of a window; its file's doc comment is its documentation.

mod alloc_churn;
mod alloc_failed;
mod blamed;
mod cpu_preempted;
mod cpu_throttled;
mod driver_call;
mod gil_wait;
mod gpu_busy;
mod graph_recapture;
mod input_starved;
mod io_wait;
mod launch_bound;
mod lazy_load;
mod lock_wait;
mod memory_leak;
mod memory_reclaim;
mod net_wait;
mod oom_kill;
mod page_fault;
mod pageable_copy;
mod sync_storm;
mod takers;

use gpuwhy_model::Cause;

use crate::case::{JobCase, ThreadCase, Verdict};

pub struct Rule {
    pub cause: Cause,
    /// The rule's source, whose doc comment is its page.
    pub page: &'static str,
    pub(crate) check: Check,
}

#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// Asked about every thread that feeds a GPU.
    Thread(fn(&ThreadCase<'_, '_>) -> Verdict),
    /// Asked once.
    Job(fn(&JobCase<'_, '_>) -> Vec<Verdict>),
}

/// Every rule, in the order of the causes.
pub const RULES: &[Rule] = &[
    cpu_preempted::RULE,
    cpu_throttled::RULE,
    lock_wait::RULE,
    gil_wait::RULE,
    io_wait::RULE,
    page_fault::RULE,
    memory_reclaim::RULE,
    net_wait::RULE,
    input_starved::RULE,
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
];

/// The advice of a rule as a finding carries it.
fn advice(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}
