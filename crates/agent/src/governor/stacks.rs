//! How many stacks are taken. They have a part of the budget for themselves, which the kernel side keeps to by the
//! measured time of each walk; when a thread is over its budget all the same, they go before anything else does.

use gpuwhy_capture::StackAllowance;

/// How many stacks to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackChoice {
    /// As many as the budget allows.
    #[default]
    WithinBudget,
    None,
    /// All that can be taken, whatever that costs.
    All,
}

/// For each kind: of calls, of waits, of wakers, and samples. What the governor aims at leaves room for them.
const PART_OF_BUDGET: f64 = 0.03;
/// When there is no budget to take a part of.
const GENEROUS: f64 = 0.01;
/// Seconds over the budget after which there are none, and under it after which there are some again.
const PATIENCE: u32 = 2;
const RECOVERY: u32 = 5;

pub struct StackShare {
    choice: StackChoice,
    budget: Option<f64>,
    are_off: bool,
    /// Seconds for which it has been time to change that.
    seconds: u32,
}

impl StackShare {
    pub fn new(choice: StackChoice, budget: Option<f64>) -> Self {
        Self { choice, budget, are_off: false, seconds: 0 }
    }

    pub fn allowance(&self) -> StackAllowance {
        match self.choice {
            StackChoice::None => StackAllowance::None,
            StackChoice::All => StackAllowance::All,
            StackChoice::WithinBudget if self.are_off => StackAllowance::None,
            StackChoice::WithinBudget => {
                StackAllowance::Share(self.budget.map_or(GENEROUS, |all| all * PART_OF_BUDGET))
            }
        }
    }

    /// A second has passed in which this share was taken from the thread that lost most. Says so when that changes
    /// something.
    pub fn second(&mut self, worst: f64) -> Option<&'static str> {
        let budget = self.budget.filter(|_| self.choice == StackChoice::WithinBudget)?;
        let is_time = if self.are_off { worst <= budget } else { worst > budget };
        self.seconds = if is_time { self.seconds + 1 } else { 0 };
        let enough = if self.are_off { RECOVERY } else { PATIENCE };
        if self.seconds < enough {
            return None;
        }
        self.seconds = 0;
        self.are_off = !self.are_off;
        Some(if self.are_off { "no stacks are taken: a thread is over its budget" } else { "stacks are taken again" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of(stacks: &StackShare) -> f64 {
        match stacks.allowance() {
            StackAllowance::Share(share) => share,
            StackAllowance::None => 0.0,
            StackAllowance::All => f64::INFINITY,
        }
    }

    #[test]
    fn stacks_go_when_a_thread_stays_over_its_budget_and_come_back() {
        let mut stacks = StackShare::new(StackChoice::WithinBudget, Some(0.01));
        assert_eq!(share_of(&stacks), 0.0003);
        assert_eq!(stacks.second(0.02), None);
        assert_eq!(stacks.second(0.009), None, "it was for a moment only");
        assert_eq!(stacks.second(0.02), None);
        assert!(stacks.second(0.02).is_some());
        assert_eq!(share_of(&stacks), 0.0);
        assert_eq!((0..4).find_map(|_| stacks.second(0.005)), None);
        assert!(stacks.second(0.005).is_some());
        assert_eq!(share_of(&stacks), 0.0003);
    }

    #[test]
    fn a_user_who_wants_all_or_none_gets_that_whatever_it_costs() {
        for (choice, share) in [(StackChoice::All, f64::INFINITY), (StackChoice::None, 0.0)] {
            let mut stacks = StackShare::new(choice, Some(0.01));
            assert_eq!((0..9).find_map(|_| stacks.second(0.5)), None);
            assert_eq!(share_of(&stacks), share);
        }
        assert_eq!(share_of(&StackShare::new(StackChoice::WithinBudget, None)), GENEROUS);
    }
}
