//! What questions want of this host.

use std::path::PathBuf;
use std::time::Duration;

use gpuwhy_model::Explanation;
use gpuwhy_questions::questions::demo::Demo;
use gpuwhy_questions::{AskError, Control, Host};
use serde_json::Value;

use crate::commands::check;
use crate::stall::Stall;

#[derive(Default)]
pub struct ThisHost {
    /// Where the trace of a demo is kept, if it is.
    pub demo_file: Option<PathBuf>,
}

impl Host for ThisHost {
    fn check(&self) -> Result<Value, AskError> {
        Ok(check::to_json(&gpuwhy_agent::check()))
    }

    fn demo(&self, demo: &Demo, duration: Duration, control: &Control) -> Result<Explanation, AskError> {
        let stall = Stall { demo, duration, out: self.demo_file.as_deref(), control };
        stall.explained().map_err(|error| AskError::Failed { message: format!("{error:#}") })
    }
}
