//! What somebody needs who is asked for help from afar: one file of JSON that its sender can read first. Environments and
//! command lines are not in it, and what looks like a secret is struck out.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use gpuwhy_agent::Report;
use gpuwhy_questions::questions::coverage::Coverage;
use gpuwhy_questions::{Ask, Asked, NoHost, Traces};
use serde_json::{Map, Value, json};

use super::to_json;

/// Files of the kernel's and the distribution's that say what kind of machine it is.
const FACTS: &[&str] = &[
    "/etc/os-release",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/kptr_restrict",
    "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/net/core/bpf_jit_enable",
    "/sys/kernel/security/lockdown",
    "/proc/driver/nvidia/version",
    "/proc/pressure/cpu",
    "/proc/meminfo",
    "/proc/self/status",
    "/proc/self/cgroup",
];

/// What is named so has a value that is nobody else's business.
const SECRETS: &[&str] = &["token", "secret", "passw", "apikey", "api_key", "api-key", "authorization", "credential"];

const STRUCK_OUT: &str = "***";

/// Writes a file that was not there before.
pub fn write(file: &Path, report: &Report, trace: Option<&Path>) -> Result<()> {
    let fact = |path: &&str| Some((path.to_string(), Value::from(std::fs::read_to_string(path).ok()?)));
    let mut bundle = json!({
        "gpuwhy": env!("CARGO_PKG_VERSION"),
        "check": to_json(report),
        "facts": FACTS.iter().filter_map(fact).collect::<Map<_, _>>(),
    });
    if let Some(trace) = trace {
        let traces = Traces::new([trace.to_owned()]);
        bundle["coverage"] = serde_json::to_value(Coverage::default().ask(&Asked::new(&traces, &NoHost))?)?;
    }
    strike_out(&mut bundle);
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .with_context(|| format!("make {}", file.display()))?;
    writeln!(out, "{bundle:#}").with_context(|| format!("write {}", file.display()))
}

fn strike_out(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(values) => values.iter_mut().for_each(strike_out),
        Value::Object(fields) => fields.values_mut().for_each(strike_out),
        _ => {}
    }
}

/// Without names of users in paths, passwords in addresses, and whatever stands after a word for a secret.
fn masked(text: &str) -> String {
    let mut is_secret = false;
    let word = |word: &str| {
        let after_secret = std::mem::take(&mut is_secret);
        let bare = word.trim_end();
        let space = &word[bare.len()..];
        let is_scheme = ["bearer", "basic"].contains(&bare.to_lowercase().as_str());
        if bare.is_empty() || is_scheme {
            is_secret = after_secret || is_scheme;
            return word.to_owned();
        }
        if after_secret {
            return format!("{STRUCK_OUT}{space}");
        }
        let names_secret = |name: &str| SECRETS.iter().any(|secret| name.to_lowercase().contains(secret));
        if let Some((name, value)) = bare.split_once(['=', ':']).filter(|(name, _)| names_secret(name)) {
            // `token: abc` goes on with the next word.
            is_secret = value.is_empty();
            let sign = &bare[name.len()..=name.len()];
            return format!("{name}{sign}{}{space}", if value.is_empty() { "" } else { STRUCK_OUT });
        }
        is_secret = names_secret(bare) && bare.starts_with("--");
        format!("{}{space}", without_user(&without_password(bare)))
    };
    text.split_inclusive(char::is_whitespace).map(word).collect()
}

/// `https://user:password@host` without what is before the `@`.
fn without_password(word: &str) -> String {
    match word.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.split_once('@')?))) {
        Some((scheme, (before, rest))) if !before.contains('/') => format!("{scheme}://{STRUCK_OUT}@{rest}"),
        _ => word.to_owned(),
    }
}

/// `/home/somebody/x` without the name.
fn without_user(word: &str) -> String {
    match word.split_once("/home/") {
        Some((before, rest)) => {
            let after = rest.find('/').map_or("", |end| &rest[end..]);
            format!("{before}/home/{STRUCK_OUT}{after}")
        }
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_struck_out_and_the_rest_stays_as_it_is() {
        for (text, expected) in [
            ("attached /usr/lib/libcuda.so.1 (cuda-driver)", "attached /usr/lib/libcuda.so.1 (cuda-driver)"),
            ("HF_TOKEN=abc python\n", "HF_TOKEN=*** python\n"),
            ("--api-key abc --steps 3", "--api-key *** --steps 3"),
            ("Authorization: Bearer abc\tx", "Authorization: Bearer ***\tx"),
            ("password:abc", "password:***"),
            ("https://me:abc@example.org/x", "https://***@example.org/x"),
            ("https://example.org/a@b", "https://example.org/a@b"),
            ("/home/ann/train.py:12", "/home/***/train.py:12"),
            ("MemTotal:       16384 kB\n", "MemTotal:       16384 kB\n"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }
}
