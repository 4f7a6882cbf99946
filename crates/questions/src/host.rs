//! What a question may want of this host rather than of a trace. The binary provides it; a test need not.

use std::time::Duration;

use gpuwhy_model::Explanation;
use serde_json::Value;

use crate::questions::demo::Demo;
use crate::{AskError, Control};

pub trait Host: Send + Sync {
    /// What can be traced here.
    fn check(&self) -> Result<Value, AskError>;

    /// Makes a real stall, traces it and explains it: the explanation.
    fn demo(&self, demo: &Demo, duration: Duration, control: &Control) -> Result<Explanation, AskError>;
}

/// Nothing but traces.
pub struct NoHost;

impl Host for NoHost {
    fn check(&self) -> Result<Value, AskError> {
        Err(not_here())
    }

    fn demo(&self, _: &Demo, _: Duration, _: &Control) -> Result<Explanation, AskError> {
        Err(not_here())
    }
}

fn not_here() -> AskError {
    AskError::NotHere { message: "there is no host to look at, only traces".to_owned() }
}
