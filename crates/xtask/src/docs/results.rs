//! Kept results in `docs/results`: which code they were measured with, and how their figures are written.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::age;
use super::root;

const FOLDER: &str = "docs/results";

/// The results in this file, if there are any.
pub fn load(name: &str) -> Result<Option<Value>> {
    let path = root().join(FOLDER).join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| format!("read {}", path.display()))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open {}", path.display())),
    }
}

/// Keeps results, with the code that they were measured with, and writes the documents made from them.
pub fn save(name: &str, mut results: Value) -> Result<()> {
    let folder = root().join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    results["commit"] = age::commit()?.into();
    results["version"] = age::VERSION.into();
    std::fs::write(folder.join(name), format!("{results:#}\n"))?;
    super::run(false)
}

/// Fails when a result does not say which code it was measured with, or when that code is too old.
pub fn check_age() -> Result<()> {
    for entry in std::fs::read_dir(root().join(FOLDER))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name == GENERATED || !name.ends_with(".json") {
            continue;
        }
        let results = load(&name)?.unwrap_or_default();
        let (commit, version) = (&results["commit"], results["version"].as_str());
        ensure!(commit.is_string(), "{FOLDER}/{name} does not say at which commit it was measured");
        let version = version.with_context(|| format!("{FOLDER}/{name} does not say which version was measured"))?;
        ensure!(
            !age::is_too_old(version, age::VERSION)?,
            "{FOLDER}/{name} was measured with version {version}, which is more than one release before {}: \
             measure it again",
            age::VERSION
        );
    }
    Ok(())
}

/// It is made from the others and says of each promise which code it was measured with.
const GENERATED: &str = "report.json";

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Where the figures were measured and with which code, in words.
pub fn measured_on(results: &Value) -> String {
    let word = |key: &str| results[key].as_str().unwrap_or("?");
    format!("{} (commit {}, version {})", machine(&results["machine"]), word("commit"), word("version"))
}

fn machine(facts: &Value) -> String {
    let word = |key: &str| facts[key].as_str().unwrap_or("?");
    if facts["gpu"].is_string() {
        return format!(
            "{}, driver {}, CUDA {}, PyTorch {}, Python {}, Linux {}",
            word("gpu"),
            word("driver"),
            word("cuda"),
            word("torch"),
            word("python"),
            word("kernel")
        );
    }
    let is_virtual = if facts["virtual_machine"] == true { ", a virtual machine" } else { "" };
    format!("Linux {}, {} x {}{is_virtual}", word("kernel"), facts["cpus"], word("cpu"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kept_result_says_which_code_was_measured_and_that_code_is_recent() {
        check_age().unwrap();
    }

    #[test]
    fn where_something_was_measured_names_the_machine_and_the_code() {
        let machine = json!({ "kernel": "6.18", "cpus": 2, "cpu": "x", "virtual_machine": true });
        let results = json!({ "machine": machine, "commit": "abc1234", "version": "0.1.0" });
        assert_eq!(measured_on(&results), "Linux 6.18, 2 x x, a virtual machine (commit abc1234, version 0.1.0)");
    }
}
