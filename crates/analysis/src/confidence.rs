//! How sure a finding is: as sure as its edges, as the share of the time they rest on, and as what was not lost.

use gpuwhy_model::{Chain, Evidence};
use gpuwhy_window::Window;

/// From this confidence on a finding is called sure.
pub const HIGH: f64 = 0.8;

/// A chain with a gap, or one that rests on a few records, is never surer than this.
const MOST_WITH_A_GAP: f64 = 0.5;
const FEW_RECORDS: u64 = 3;

/// Clocks and records begin and end at different moments; so much of a difference means nothing.
const NEARLY_ALL: f64 = 0.95;

/// Losses that are no gap in the records: calls that never returned, or that had begun before tracing did.
const NO_GAP: &[&str] = &["abandoned", "unmatched", "cut_off", "expired", "wait_ring_full"];

/// What a finding rests on beside its chain.
#[derive(Clone, Copy, Debug)]
pub struct Backing {
    /// Share of the time for which there are records.
    pub share: f64,
    pub records: u64,
}

impl Backing {
    /// Sums and return codes need no records of single waits.
    pub const SUMS: Self = Self { share: 1.0, records: u64::MAX };
}

pub(crate) fn weigh(chain: &Chain, backing: Backing, window: &Window) -> f64 {
    let edges: f64 = chain.edges().map(|edge| weight(edge.evidence)).product();
    let share = if backing.share.is_finite() { (backing.share / NEARLY_ALL).clamp(0.0, 1.0) } else { 0.0 };
    let confidence = edges * share * (1.0 - lost_share(window));
    let has_gap = chain.weakest() == Evidence::Missing || backing.records < FEW_RECORDS;
    let most = if has_gap { MOST_WITH_A_GAP } else { 1.0 };
    (confidence.clamp(0.0, most) * 100.0).round() / 100.0
}

fn weight(evidence: Evidence) -> f64 {
    match evidence {
        Evidence::Explicit => 1.0,
        Evidence::Observed => 0.97,
        Evidence::Inferred => 0.8,
        Evidence::Missing => 0.5,
    }
}

/// Of all records of the sessions, how many were lost.
fn lost_share(window: &Window) -> f64 {
    let (mut lost, mut kept) = (0u64, 0u64);
    for session in &window.sessions {
        let gaps = session.losses.iter().filter(|(reason, _)| !NO_GAP.contains(&reason.as_str()));
        lost = gaps.fold(lost, |sum, (_, count)| sum.saturating_add(*count));
        kept = kept.saturating_add(session.stored.max(session.seen.unwrap_or(0)));
    }
    kept = kept.saturating_add(window.stretches.rows.len() as u64);
    if lost == 0 { 0.0 } else { lost as f64 / (lost as f64 + kept as f64) }
}
