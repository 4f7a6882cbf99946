//! Hosts whose agents answer for themselves: whoever asks collects the answers, and nothing has to run in between.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use gpuwhy_outputs::{Clock, Node, Nodes, Reply};
use gpuwhy_questions::units::{duration, parse_duration};
use serde::Serialize;
use serde_json::{Value, json};

use super::serving::token;
use crate::print;

/// Which other hosts are asked, and how.
#[derive(Args, Clone)]
pub struct OtherHosts {
    /// Ask these hosts, where `gpuwhy trace --serve` or `gpuwhy dashboard` runs: node7,node8:8080. They are asked with TLS and
    /// at port 9465 unless they are named otherwise, as http://node7.
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',', global = true)]
    nodes: Vec<Node>,
    /// The token that these hosts want, in a file [default: the environment variable GPUWHY_TOKEN].
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The longest that a host may take for its answer.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s", global = true)]
    node_timeout: Duration,
}

impl OtherHosts {
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Those that are named, if any are.
    pub fn named(&self) -> Result<Option<Nodes>> {
        if self.nodes.is_empty() {
            return match self.token_file {
                Some(_) => bail!("--token-file is for the hosts of --nodes"),
                None => Ok(None),
            };
        }
        Ok(Some(Nodes::new(self.nodes.clone(), token(self.token_file.as_deref())?, self.node_timeout)))
    }
}

/// Their traces, each with the host's name; they lie in this folder.
pub fn fetched(nodes: &Nodes, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let replies = nodes.fetch(folder);
    tell(&replies);
    answered(replies)
}

/// What does not show in the answers: who gave none, and whose clock is off.
pub fn tell<T>(replies: &[Reply<T>]) {
    for Reply { node, answer, clock } in replies {
        if let Err(error) = answer {
            print::warning(&format!("{node}: {error}"));
            if let Some(hint) = error.hint() {
                print::hint(hint);
            }
        }
        if let Some(clock) = clock.filter(Clock::is_off) {
            print::warning(&format!("{node}: its clock is {}", off(clock)));
        }
    }
}

/// In words.
pub fn off(clock: Clock) -> String {
    let side = if clock.ahead_ns < 0 { "behind" } else { "ahead" };
    let [by, error] = [clock.ahead_ns.unsigned_abs(), clock.error_ns].map(duration);
    format!("{by} {side}, known to within {error}")
}

/// The answers of those who gave one. That nobody did is an error.
pub fn answered<T>(replies: Vec<Reply<T>>) -> Result<Vec<(String, T)>> {
    let count = replies.len();
    let answers: Vec<_> =
        replies.into_iter().filter_map(|Reply { node, answer, .. }| Some((node, answer.ok()?))).collect();
    match answers.is_empty() {
        true => bail!("none of {count} hosts answered"),
        false => Ok(answers),
    }
}

/// Everything that came of it, for programs.
pub fn to_json<T: Serialize>(replies: &[Reply<T>]) -> Value {
    let one = |Reply { node, answer, clock }: &Reply<T>| {
        let error = answer.as_ref().err();
        let error =
            error.map(|error| json!({"code": error.code(), "message": error.to_string(), "hint": error.hint()}));
        json!({"node": node, "clock": clock, "answer": answer.as_ref().ok(), "error": error})
    };
    json!({"nodes": replies.iter().map(one).collect::<Vec<_>>()})
}
