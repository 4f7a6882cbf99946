//! What a session has come to so far.

use std::time::Duration;

use crate::Losses;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub elapsed: Duration,
    /// Finished calls the kernel counted.
    pub seen: u64,
    /// Calls that are in the trace file.
    pub stored: u64,
    pub losses: Losses,
    pub probes: usize,
    pub cost: Cost,
    pub sinks: Vec<SinkState>,
}

/// What tracing costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// The share of its time that the thread lost from which most was taken, in the last second.
    pub worst: f64,
    /// The largest such share in any second, leaving out the first ones, in which the tracer finds its feet.
    pub most: f64,
    /// CPU time of the tracer itself as a share of one CPU, in the last second.
    pub agent: f64,
    seconds: u32,
    agent_sum: f64,
}

/// Seconds until the tracer has settled.
const SETTLES: u32 = 3;

impl Cost {
    /// Another second is over.
    pub fn add_second(&mut self, worst: f64, agent: f64) {
        self.worst = worst;
        self.most = if self.seconds >= SETTLES { self.most.max(worst) } else { 0.0 };
        self.agent = agent;
        self.seconds += 1;
        self.agent_sum += agent;
    }

    /// CPU time of the tracer itself as a share of one CPU, on the whole.
    pub fn agent_mean(&self) -> f64 {
        self.agent_sum / f64::from(self.seconds.max(1))
    }
}

/// How one receiver of rows is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkState {
    pub name: &'static str,
    /// Rows it had no room for, or came after its end.
    pub lost_rows: u64,
    /// Why it takes no rows any more.
    pub ended: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_seconds_do_not_count_as_the_worst() {
        let mut cost = Cost::default();
        for worst in [0.5, 0.4, 0.3, 0.02, 0.01] {
            cost.add_second(worst, 0.1);
        }
        assert_eq!((cost.most, cost.worst), (0.02, 0.01));
        assert!((cost.agent_mean() - 0.1).abs() < 1e-9);
    }
}
