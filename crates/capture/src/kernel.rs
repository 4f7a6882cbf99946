//! What this kernel lets us do, tried and not guessed.

use std::ffi::CString;
use std::path::Path;

use anyhow::{Context, Result, bail};

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

/// Looks at everything, cheapest first. Nothing is changed, except that tracefs is mounted where it may be.
pub fn capabilities() -> Vec<Capability> {
    vec![
        capability("kernel", kernel_release(), true),
        capability("privilege", privilege(), true),
        capability("BTF", btf(Path::new("/sys/kernel/btf/vmlinux")), true),
        capability("tracefs", mount_tracefs(), true),
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
    let release = release.trim().to_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (5, 18) {
        return Err(problem(format!("Linux {release} is too old"), "gpuwhy needs Linux 5.18 or later"));
    }
    Ok(format!("Linux {release}"))
}

/// The bits of CAP_PERFMON, CAP_BPF and, for kernels that lump them together, CAP_SYS_ADMIN.
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

fn privilege() -> Result<String, Problem> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| problem(format!("cannot read /proc/self/status: {error}"), "mount /proc"))?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    if effective & CAP_SYS_ADMIN != 0 {
        return Ok("CAP_SYS_ADMIN".to_owned());
    }
    if effective & CAP_BPF != 0 && effective & CAP_PERFMON != 0 {
        return Ok("CAP_BPF and CAP_PERFMON".to_owned());
    }
    Err(problem("not enough privilege to load BPF programs", "run it with sudo, or grant CAP_BPF and CAP_PERFMON"))
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
