//! What can be traced here, and what cannot, with the reason.

use std::path::PathBuf;

use gpuwhy_capture::{
    Calibration, Capability, FamilyState, FeatureState, Found, Kernel, Options, RunningKernel, Tracer, Yardstick,
    capabilities, features,
};

use crate::discovery::{Discovery, has_telling_name};
use crate::gpus::Gpus;
use crate::procfs::{Mapping, Procfs};
use crate::stacks::{Refused, look_for_interpreter};

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: String,
    pub ok: bool,
    /// Whether tracing is impossible unless it is mended.
    pub required: bool,
    pub detail: String,
    pub hint: Option<String>,
}

/// One of the kernel's features that capturing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFeature {
    pub name: String,
    /// `None` where that could not be tried.
    pub ok: Option<bool>,
    /// Whether tracing is impossible without it.
    pub required: bool,
    pub needs: String,
    /// The first Linux of kernel.org that has it.
    pub since: Option<&'static str>,
    /// What a trace lacks without it.
    pub without: String,
    /// Why it is off, or could not be tried, where more is known than that what it needs is not there.
    pub why: Option<String>,
}

/// A process that uses CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsesCuda {
    pub pid: u32,
    pub comm: String,
    /// Files that would be attached: what it is, and how many functions.
    pub attachable: Vec<(PathBuf, &'static str, usize)>,
    /// Why calls of this process would not be seen.
    pub not_attached: Option<String>,
    /// Of a process that runs Python.
    pub python: Option<PythonFrames>,
}

/// Whether Python's frames show in the stacks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PythonFrames {
    Walked { version: String },
    NotWalked { why: String },
}

#[derive(Clone, Debug)]
pub struct Report {
    pub checks: Vec<Check>,
    pub features: Vec<KernelFeature>,
    pub processes: Vec<UsesCuda>,
}

impl Report {
    /// Whether a trace can be taken.
    pub fn can_trace(&self) -> bool {
        self.checks.iter().all(|check| check.ok || !check.required)
    }

    /// Whether there is anything to mend.
    pub fn found_problem(&self) -> bool {
        !self.can_trace() || self.processes.iter().any(|process| process.not_attached.is_some())
    }
}

pub fn check() -> Report {
    check_on(&RunningKernel::look())
}

fn check_on(kernel: &impl Kernel) -> Report {
    let found = features(kernel);
    let mut features: Vec<KernelFeature> = found.iter().map(from_feature).collect();
    let mut checks: Vec<Check> = capabilities(&found).into_iter().map(from_capability).collect();
    if checks.iter().all(|check| check.ok || !check.required) {
        let (more, families) = probes();
        checks.extend(more);
        features.extend(families);
    }
    checks.push(gpu(&Gpus::read("/proc".as_ref())));
    Report { checks, features, processes: processes(&Procfs::default()) }
}

fn from_feature(state: &FeatureState) -> KernelFeature {
    let (ok, why) = match &state.found {
        Found::On => (Some(true), None),
        Found::Off => (Some(false), None),
        Found::NotTried(why) => (None, Some(why.clone())),
    };
    KernelFeature {
        name: state.feature.name.to_owned(),
        ok,
        required: state.is_required(),
        needs: state.needs(),
        since: Some(state.feature.since),
        without: state.feature.without.as_str().to_owned(),
        why,
    }
}

fn from_family(family: &FamilyState) -> KernelFeature {
    KernelFeature {
        name: format!("{} family", family.name),
        ok: Some(family.refused.is_none()),
        required: false,
        needs: "its programs load and attach".to_owned(),
        since: None,
        without: format!("no {}", family.without),
        why: family.refused.clone(),
    }
}

fn from_capability(capability: Capability) -> Check {
    let (ok, detail, hint) = match capability.found {
        Ok(detail) => (true, detail, None),
        Err(problem) => (false, problem.what, Some(problem.hint)),
    };
    Check { name: capability.name.to_owned(), ok, required: capability.required, detail, hint }
}

/// Loads the real programs, and measures them on a function of our own.
fn probes() -> (Vec<Check>, Vec<KernelFeature>) {
    let check =
        |name: &str, detail: String| Check { name: name.to_owned(), ok: true, required: true, detail, hint: None };
    match Tracer::<()>::load(&Options::default()) {
        Ok(tracer) => {
            let Yardstick { path, probe_ns } = tracer.yardstick;
            let probes = format!("{} uprobes, {probe_ns} ns for an empty entry and return", path.as_str());
            let cost = Check { required: false, ..check("cost", cost(&tracer.calibration)) };
            let families = tracer.optional.iter().map(from_family).collect();
            (vec![check("probes", probes), stacks(&tracer), cost], families)
        }
        Err(error) => {
            let hint = "BPF may be locked down: see `sysctl kernel.unprivileged_bpf_disabled` and the kernel's log";
            let failed = Check { ok: false, hint: Some(hint.to_owned()), ..check("probes", format!("{error:#}")) };
            (vec![failed], Vec::new())
        }
    }
}

/// The programs that walk are loaded already; what remains is the memory for what they have to know.
fn stacks(tracer: &Tracer<()>) -> Check {
    let (ok, detail) = match tracer.stack_tables() {
        Ok(_) => (true, "taken in the kernel: native frames, and those of Python".to_owned()),
        Err(error) => (false, format!("{error:#}")),
    };
    Check { name: "stacks".to_owned(), ok, required: true, detail, hint: None }
}

fn cost(calibration: &Calibration) -> String {
    let figures = calibration.figures().map(|(what, ns)| format!("{what} {ns:.0} ns"));
    let machine = if calibration.is_virtual_machine { ", in a virtual machine" } else { "" };
    format!("{}{machine}", figures.join(", "))
}

fn gpu(gpus: &Gpus) -> Check {
    let detail = match (&gpus.driver, gpus.gpus.len()) {
        (Some(driver), count) => format!("{count} GPU(s), driver {driver}: {}", gpus.lines().join("; ")),
        (None, _) => "no NVIDIA driver is loaded; calls are traced all the same".to_owned(),
    };
    Check { name: "gpu".to_owned(), ok: gpus.driver.is_some(), required: false, detail, hint: None }
}

/// Every process that maps a CUDA library or has a GPU open.
pub fn processes(procfs: &Procfs) -> Vec<UsesCuda> {
    let own = std::process::id();
    procfs.pids().into_iter().filter(|&pid| pid != own).filter_map(|pid| look_at(procfs, pid)).collect()
}

fn look_at(procfs: &Procfs, pid: u32) -> Option<UsesCuda> {
    let comm = procfs.comm(pid)?;
    let uses =
        |attachable, not_attached, python| Some(UsesCuda { pid, comm: comm.clone(), attachable, not_attached, python });
    let mappings = match procfs.code(pid) {
        Ok(mappings) => mappings,
        Err(error) if procfs.has_gpu_device(pid) => {
            return uses(Vec::new(), Some(format!("its memory map cannot be read: {error}")), None);
        }
        Err(_) => return None,
    };
    // A discovery of its own, so that a file shared by many processes is reported for each.
    let mut discovery = Discovery::new(procfs.clone());
    let found = discovery.scan(&[pid]);
    let attachable: Vec<_> = found
        .iter()
        .map(|found| (found.name.clone(), found.image.library.unwrap_or_default(), found.image.probes.len()))
        .collect();
    let has_driver = attachable.iter().any(|&(_, library, _)| library == "cuda-driver");
    let has_any = !attachable.is_empty() || mappings.iter().any(|mapping| has_telling_name(&mapping.path));
    if !has_any && !procfs.has_gpu_device(pid) {
        return None;
    }
    let not_attached = if let Some(bad) = discovery.unusable.first() {
        Some(format!("{} {}", bad.name.display(), bad.why))
    } else if has_driver {
        None
    } else if attachable.is_empty() {
        let what = if has_any { "maps a file with the name of a CUDA library" } else { "has a GPU open" };
        Some(format!("it {what}, but none that exports the CUDA driver's functions"))
    } else {
        Some("it has not loaded the CUDA driver (yet); it is attached as soon as it does".to_owned())
    };
    uses(attachable, not_attached, python_frames(procfs, pid, &mappings))
}

fn python_frames(procfs: &Procfs, pid: u32, mappings: &[Mapping]) -> Option<PythonFrames> {
    match look_for_interpreter(procfs, pid, mappings) {
        Ok(found) => found.map(|found| PythonFrames::Walked { version: found.version.to_string() }),
        Err(Refused { path, why }) => Some(PythonFrames::NotWalked { why: format!("{}: {why}", path.display()) }),
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_capture::Need;

    use super::*;

    /// A kernel without the helper of this name.
    struct WithoutHelper(&'static str);

    impl Kernel for WithoutHelper {
        fn has(&self, need: Need) -> Result<bool, String> {
            Ok(!matches!(need, Need::Helper(_, name) if name == self.0))
        }
    }

    #[test]
    fn a_kernel_that_lacks_what_everything_needs_cannot_trace_and_is_told_what_it_lacks() {
        let report = check_on(&WithoutHelper("bpf_get_attach_cookie"));
        assert!(!report.can_trace());
        let line = report.checks.iter().find(|check| check.name == "features").unwrap();
        assert!(line.required && !line.ok, "{line:?}");
        assert!(line.detail.contains("attach cookies (bpf_get_attach_cookie in programs at functions)"), "{line:?}");
        assert!(line.hint.as_ref().is_some_and(|hint| hint.contains("Linux 5.15 or later")), "{line:?}");
        let off: Vec<&str> =
            report.features.iter().filter(|feature| feature.ok == Some(false)).map(|one| one.name.as_str()).collect();
        assert_eq!(off, ["attach cookies"]);
        assert!(!report.checks.iter().any(|check| check.name == "probes"), "nothing is loaded: {:?}", report.checks);
    }

    #[test]
    fn a_family_that_is_refused_is_off_with_what_is_missing_and_why() {
        let refused = Some("attach mm_compaction_begin: no such tracepoint".to_owned());
        let family = FamilyState { name: "memory", without: "reclaim, compaction and OOM kills", refused };
        let told = from_family(&family);
        assert_eq!((told.ok, told.required), (Some(false), false));
        assert_eq!(
            (told.name.as_str(), told.without.as_str()),
            ("memory family", "no reclaim, compaction and OOM kills")
        );
        assert_eq!(told.why, family.refused);
        assert!(family.warning().is_some_and(|warning| warning.contains("mm_compaction_begin")));
    }
}
