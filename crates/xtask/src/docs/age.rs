//! How old a result is: the commit and the version of the code that was measured.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::root;

/// Of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that is checked out, marked if files differ from it.
pub fn commit() -> Result<String> {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"];
    let output = Command::new("git").args(arguments).current_dir(root()).output().context("run git")?;
    ensure!(output.status.success(), "git does not say which commit is checked out");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Whether there is a release between the one that was measured and this one. A release is a change of the second
/// number or of the first: fixes are none.
pub fn is_too_old(measured: &str, now: &str) -> Result<bool> {
    let ((major, minor), (major_now, minor_now)) = (release(measured)?, release(now)?);
    Ok(match major_now.saturating_sub(major) {
        0 => minor_now > minor + 1,
        1 => minor_now > 0,
        _ => true,
    })
}

fn release(version: &str) -> Result<(u64, u64)> {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => anyhow::bail!("{version:?} is not a version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_may_be_one_release_behind_and_no_more() {
        for (measured, now, expected) in [
            ("0.1.0", "0.1.0", false),
            ("0.1.0", "0.1.7", false),
            ("0.1.0", "0.2.0", false),
            ("0.1.0", "0.3.0", true),
            ("0.9.2", "1.0.0", false),
            ("0.9.2", "1.1.0", true),
            ("0.9.2", "2.0.0", true),
            ("0.2.0", "0.1.0", false),
        ] {
            assert_eq!(is_too_old(measured, now).unwrap(), expected, "{measured} at {now}");
        }
        assert!(is_too_old("yesterday", "0.1.0").is_err());
    }
}
