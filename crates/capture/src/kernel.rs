//! What this kernel lets us do, tried and not guessed.

use std::ffi::CString;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::features::{FeatureState, refusal};

/// One thing capturing needs, and whether it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    pub name: &'static str,
    pub found: Result<String, Problem>,
    /// Whether capturing is impossible without it.
    pub required: bool,
}

/// Something that stands in the way, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub hint: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

/// Looks at everything else that matters besides what is known of the kernel's features. Nothing is changed, except that
/// tracefs is mounted where it may be.
pub fn capabilities(features: &[FeatureState]) -> Vec<Capability> {
    vec![
        capability("kernel", kernel_release(), true),
        capability("privilege", privilege(), true),
        capability("BTF", btf(Path::new("/sys/kernel/btf/vmlinux")), true),
        capability("features", refusal(features), true),
        capability("tracefs", mount_tracefs(), true),
        capability("others", others(), false),
        capability("timing", timing(), false),
    ]
}

fn capability(name: &'static str, found: Result<String, Problem>, required: bool) -> Capability {
    Capability { name, found, required }
}

fn problem(what: impl Into<String>, hint: impl Into<String>) -> Problem {
    Problem { what: what.into(), hint: hint.into() }
}

fn kernel_release() -> Result<String, Problem> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(|error| problem(format!("cannot read the kernel's version: {error}"), "mount /proc"))?;
    Ok(format!("Linux {}", release.trim()))
}

/// A Linux capability: its name, its number, what it is for.
struct Privilege {
    name: &'static str,
    bit: u32,
    what_for: &'static str,
}

/// Nothing can be captured without these. Kernels that do not know them lump them together in CAP_SYS_ADMIN.
const TO_CAPTURE: &[Privilege] = &[
    Privilege { name: "CAP_BPF", bit: 39, what_for: "load BPF programs" },
    Privilege { name: "CAP_PERFMON", bit: 38, what_for: "attach them to programs and to the scheduler" },
];

/// Without these some processes cannot be seen, or not as closely.
const TO_SEE_OTHERS: &[Privilege] = &[
    Privilege {
        name: "CAP_SYS_PTRACE",
        bit: 19,
        what_for: "see which libraries processes of others use, and where they are",
    },
    Privilege { name: "CAP_DAC_READ_SEARCH", bit: 2, what_for: "read programs and libraries in folders of others" },
];

/// Without it, what our programs take is estimated.
const TO_TIME: &[Privilege] =
    &[Privilege { name: "CAP_SYS_ADMIN", bit: 21, what_for: "have the kernel time BPF programs" }];

pub fn privilege() -> Result<String, Problem> {
    let granted = granted()?;
    if missing(granted, TO_TIME).is_none() {
        return Ok("CAP_SYS_ADMIN".to_owned());
    }
    match missing(granted, TO_CAPTURE) {
        None => Ok("CAP_BPF and CAP_PERFMON".to_owned()),
        Some(missing) => Err(problem(
            format!("not enough privilege to capture: {missing}"),
            "run it with sudo, or grant CAP_BPF and CAP_PERFMON",
        )),
    }
}

fn others() -> Result<String, Problem> {
    match missing(granted()?, TO_SEE_OTHERS) {
        None => Ok("all can be looked at".to_owned()),
        Some(missing) => Err(problem(
            format!("processes of other users cannot all be seen: {missing}"),
            "run it with sudo, or grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
        )),
    }
}

fn timing() -> Result<String, Problem> {
    match missing(granted()?, TO_TIME) {
        None => Ok("the kernel times what tracing costs".to_owned()),
        Some(missing) => Err(problem(
            format!("what tracing costs is estimated in part: {missing}"),
            "nothing has to be done; run it with sudo, or grant CAP_SYS_ADMIN, for exact figures",
        )),
    }
}

/// What is not granted, and what for.
fn missing(granted: u64, needed: &[Privilege]) -> Option<String> {
    let lacks = needed.iter().filter(|one| granted & (1 << one.bit) == 0);
    let lacks: Vec<String> = lacks.map(|one| format!("{} is missing, to {}", one.name, one.what_for)).collect();
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

fn granted() -> Result<u64, Problem> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| problem(format!("cannot read /proc/self/status: {error}"), "mount /proc"))?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    Ok(effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0))
}

fn btf(path: &Path) -> Result<String, Problem> {
    match path.metadata() {
        Ok(metadata) => Ok(format!("{} KiB of kernel types", metadata.len() / 1024)),
        Err(_) => Err(problem(
            format!("{} is missing: the kernel does not describe its types", path.display()),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (all current distributions' are)",
        )),
    }
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// Finds tracefs, mounting it where nobody has.
fn mount_tracefs() -> Result<String, Problem> {
    let found = |path: &str| Path::new(path).join("events").exists();
    if let Some(path) = [TRACEFS, "/sys/kernel/debug/tracing"].into_iter().find(|path| found(path)) {
        return Ok(path.to_owned());
    }
    match mount(TRACEFS) {
        Ok(()) if found(TRACEFS) => Ok(format!("{TRACEFS} (mounted just now)")),
        Ok(()) => Err(problem(format!("{TRACEFS} is mounted but empty"), "mount tracefs there by hand")),
        Err(error) => Err(problem(
            format!("tracefs is not mounted and cannot be: {error:#}"),
            format!("as root: mount -t tracefs nodev {TRACEFS}"),
        )),
    }
}

fn mount(path: &str) -> Result<()> {
    let target = CString::new(path).context("path")?;
    // SAFETY: all three strings are zero-terminated and outlive the call; the kernel copies them.
    let result = unsafe { libc::mount(c"nodev".as_ptr(), target.as_ptr(), c"tracefs".as_ptr(), 0, std::ptr::null()) };
    if result != 0 {
        bail!(std::io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_type_information_is_named_with_what_to_do() {
        let problem = btf(Path::new("/nonexistent/btf")).unwrap_err();
        assert!(problem.what.contains("/nonexistent/btf"));
        assert!(problem.hint.contains("CONFIG_DEBUG_INFO_BTF"));
    }

    #[test]
    fn this_kernel_has_a_version() {
        assert!(kernel_release().unwrap().starts_with("Linux "));
    }
}
