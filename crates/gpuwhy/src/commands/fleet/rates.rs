//! What an hour of a GPU costs, as the operator writes it into a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gpuwhy_fleet::Rates;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    currency: String,
    #[serde(default)]
    gpus: BTreeMap<String, f64>,
    other: Option<f64>,
}

pub fn read(path: &Path) -> Result<Rates> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Rates> {
    let File { currency, gpus, other } = toml::from_str(text)?;
    let all = gpus.iter().map(|(gpu, rate)| (gpu.as_str(), *rate)).chain(other.map(|rate| ("other", rate)));
    for (gpu, rate) in all {
        if !rate.is_finite() || rate < 0.0 || gpu.is_empty() {
            bail!("{gpu:?}: {rate} is no price of an hour");
        }
    }
    if gpus.is_empty() && other.is_none() {
        bail!("there is no price in it: [gpus] has one for each kind, and `other` is that of all others");
    }
    Ok(Rates { currency, gpus, other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_what_is_none_is_told_with_its_place() {
        let read = parse("currency = \"USD\"\nother = 1\n[gpus]\nH200 = 3.5\n").unwrap();
        assert_eq!((read.of(Some("NVIDIA H200")), read.of(None)), (Some(3.5), Some(1.0)));
        for (text, words) in [
            ("currency = \"USD\"\n", "no price"),
            ("currency = \"USD\"\nother = -1\n", "other"),
            ("currency = \"USD\"\nother = nan\n", "no price"),
            ("currency = \"USD\"\n[gpus]\nL4 = \"much\"\n", "line 3"),
            ("currency = \"USD\"\nothers = 1\n", "line 2"),
            ("[gpus]\nL4 = 1\n", "currency"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
