//! What questions want of this host.

use std::time::Duration;

use gpuwhy_model::Explanation;
use gpuwhy_questions::{AskError, Control, Host};
use serde_json::Value;

use crate::commands::{check, demo};

pub struct ThisHost;

/// Long enough for every scenario to show.
const DEMO: Duration = Duration::from_secs(5);

impl Host for ThisHost {
    fn check(&self) -> Result<Value, AskError> {
        Ok(check::to_json(&gpuwhy_agent::check()))
    }

    fn demo(&self, scenario: Option<&str>, healthy: bool, control: &Control) -> Result<Explanation, AskError> {
        let run = demo::Run { scenario, healthy, duration: DEMO, out: None, control: control.clone() };
        run.explained().map_err(|error| AskError::Failed { message: format!("{error:#}") })
    }
}
