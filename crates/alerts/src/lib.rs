//! Limits that people set, and when they are broken. No I/O, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`conditions`] | everything that can have a limit: its name, its unit and what it means |
//! | [`Rules`] | a rules file: alerts, each with its limit, and what is done when one fires |
//! | [`Engine`] | who is above which limit, for how long, and since when no more |

pub mod conditions;
mod engine;
mod file;

pub use conditions::{CONDITIONS, Condition, Unit};
pub use engine::{Engine, Event, MOST_WATCHED, Measured, Shared, State};
pub use file::{Action, Alert, Deed, LOG, Rules, RulesError};
