//! Which time of the past is asked about, and by what its sums are told apart.

use std::time::Duration;

use clap::Args;
use gpuwhy_fleet::{SUMS, Sums};
use gpuwhy_history::Key;
use gpuwhy_model::UnixNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Length;

const USUAL: Duration = Duration::from_secs(3600);

/// Which time of the past.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Over {
    /// The last part: 30m, 24h, 168h [default: 1h].
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub since: Option<Length>,
    /// Up to so long ago: 10m, 24h [default: now].
    #[arg(long, value_name = "TIME")]
    #[serde(default)]
    pub until: Option<Length>,
}

/// The time that was read: where windows of sums begin and end.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct Stretch {
    #[schemars(with = "UnixNs")]
    pub from_ns: u64,
    #[schemars(with = "UnixNs")]
    pub to_ns: u64,
}

impl Over {
    /// From when, until when.
    pub fn bounds(&self, now_ns: u64) -> (u64, u64) {
        let back = |length: Option<Length>, usual: Duration| length.map_or(usual, |length| length.0).as_nanos() as u64;
        let (since_ns, until_ns) = (back(self.since, USUAL), back(self.until, Duration::ZERO));
        (now_ns.saturating_sub(since_ns.max(until_ns)), now_ns.saturating_sub(until_ns))
    }
}

/// `node`, `gpu`, `hour`, or what a label is called.
pub fn key(by: &str) -> Key {
    match by {
        "node" => Key::Node,
        "gpu" => Key::Gpu,
        "hour" => Key::Hour,
        label => Key::Label(label.to_owned()),
    }
}

/// One of the sums, by its name.
pub fn sum(sums: &Sums, name: &str) -> u64 {
    SUMS.iter().position(|sum| sum.name == name).map_or(0, |at| sums.0[at])
}
