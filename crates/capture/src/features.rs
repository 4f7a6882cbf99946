//! What capturing needs of a kernel, feature by feature, each tried and none concluded from a version: distributions add
//! newer features to kernels with old numbers, and leave others out.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType};
use libbpf_rs::{MapType, ProgramType, libbpf_sys};

use crate::attach::AttachPath;
use crate::kernel::{Problem, privilege};
use crate::yardstick::Yardstick;

/// Something of the kernel's that capturing uses and that not every kernel in use has.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    pub name: &'static str,
    /// Any of these will do.
    pub needs: &'static [Need],
    /// The first Linux of kernel.org that has it.
    pub since: &'static str,
    pub without: Without,
}

/// What it means that a feature is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// Nothing can be captured, since this would be so.
    Impossible(&'static str),
    /// Answers may be less than they could be: a trace says so.
    Less(&'static str),
    /// The same is captured, at a higher price.
    Dearer(&'static str),
}

impl Without {
    const fn is_impossible(self) -> bool {
        matches!(self, Self::Impossible(_))
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Impossible(what) | Self::Less(what) | Self::Dearer(what) => what,
        }
    }
}

/// What can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Map(MapType, &'static str),
    /// A helper that programs at functions may call.
    Helper(u32, &'static str),
    /// Atomic operations that say what was there before.
    FetchingAtomics,
    /// A tracepoint whose arguments have types.
    Tracepoint(&'static str),
    /// Whose name nothing but a function has: the kernel's types are asked by name.
    KernelFunction(&'static str),
    KernelStruct(&'static str),
    KernelMember(&'static str, &'static str),
    Attach(AttachPath),
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Map(_, name) => write!(f, "maps of type {name}"),
            Self::Helper(_, name) => write!(f, "{name} in programs at functions"),
            Self::FetchingAtomics => f.write_str("atomic operations that return a value"),
            Self::Tracepoint(name) => write!(f, "the tracepoint {name} with types"),
            Self::KernelFunction(name) => write!(f, "the kernel's function {name}"),
            Self::KernelStruct(name) => write!(f, "the kernel's struct {name}"),
            Self::KernelMember(of, member) => write!(f, "the kernel's {of}.{member}"),
            Self::Attach(path) => write!(f, "{} uprobe links", path.as_str()),
        }
    }
}

/// Whether a thread can get its state where the scheduler's locks are held.
pub const STATE_AT_WAKEUPS: Feature = Feature {
    name: "state at wake-ups",
    // Storage has an allocator of its own there, or the one that took its place: neither wakes anybody.
    needs: &[
        Need::KernelMember("bpf_local_storage_map", "selem_ma"),
        Need::KernelFunction("kmalloc_nolock_noprof"),
        Need::KernelFunction("_kmalloc_nolock_noprof"),
    ],
    since: "6.4",
    without: Without::Less(
        "whoever ends a wait is followed from the next second on, and not from that moment: \
        what held up short-lived threads may be missing",
    ),
};

/// Those that nothing works without come first.
pub const FEATURES: &[Feature] = &[
    Feature {
        name: "typed tracepoints",
        needs: &[Need::Tracepoint("sched_switch")],
        since: "5.5",
        without: Without::Impossible("nothing would be known of waits"),
    },
    Feature {
        name: "ring buffers",
        needs: &[Need::Map(MapType::RingBuf, "ringbuf")],
        since: "5.8",
        without: Without::Impossible("no record would leave the kernel"),
    },
    Feature {
        name: "task iterator",
        needs: &[Need::KernelStruct("bpf_iter__task")],
        since: "5.8",
        without: Without::Impossible("nobody could read where the time of threads went"),
    },
    Feature {
        name: "fetching atomics",
        needs: &[Need::FetchingAtomics],
        since: "5.12",
        without: Without::Impossible("CPUs could not number calls and operations in common"),
    },
    Feature {
        name: "task storage",
        needs: &[Need::Helper(libbpf_sys::BPF_FUNC_task_storage_get, "bpf_task_storage_get")],
        since: "5.13",
        without: Without::Impossible("there would be no place for a thread's open calls and clocks"),
    },
    Feature {
        name: "attach cookies",
        needs: &[Need::Helper(libbpf_sys::BPF_FUNC_get_attach_cookie, "bpf_get_attach_cookie")],
        since: "5.15",
        without: Without::Impossible("a probe could not tell which function it is on"),
    },
    Feature {
        name: "task registers",
        needs: &[Need::Helper(libbpf_sys::BPF_FUNC_task_pt_regs, "bpf_task_pt_regs")],
        since: "5.15",
        without: Without::Impossible("nobody would know what a thread waits for, nor its stack"),
    },
    STATE_AT_WAKEUPS,
    Feature {
        name: "multi-uprobes",
        needs: &[Need::Attach(AttachPath::Multi)],
        since: "6.6",
        without: Without::Dearer(
            "every function has links of its own, which take longer to attach and much longer to remove",
        ),
    },
    Feature {
        name: "session uprobes",
        needs: &[Need::Attach(AttachPath::Session)],
        since: "6.13",
        without: Without::Dearer(
            "the return of a call that is not wanted costs a probe, too, and no process can have a function \
            watched more closely than others",
        ),
    },
];

/// Whether a feature is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    On,
    Off,
    /// Why it could not be tried.
    NotTried(String),
}

/// A feature, and whether it is there.
#[derive(Clone, Debug)]
pub struct FeatureState {
    pub feature: Feature,
    pub found: Found,
}

impl FeatureState {
    pub fn is_required(&self) -> bool {
        self.feature.without.is_impossible()
    }

    /// What to look for, in words.
    pub fn needs(&self) -> String {
        let needs: Vec<String> = self.feature.needs.iter().map(Need::to_string).collect();
        needs.join(", or ")
    }

    /// What a trace has to say about it, since answers depend on it.
    pub fn warning(&self) -> Option<String> {
        let Without::Less(without) = self.feature.without else { return None };
        let Feature { name, since, .. } = self.feature;
        (self.found == Found::Off).then(|| format!("this kernel has no {name} (Linux {since}): {without}"))
    }
}

/// Who says whether something is there: the running kernel, and in tests whoever they make up.
pub trait Kernel {
    fn has(&self, need: Need) -> Result<bool, String>;
}

/// Every feature, tried.
pub fn features(kernel: &impl Kernel) -> Vec<FeatureState> {
    FEATURES.iter().map(|&feature| try_feature(kernel, feature)).collect()
}

/// Only those that nothing can be captured without, which is quicker.
pub fn required_features(kernel: &impl Kernel) -> Vec<FeatureState> {
    let required = FEATURES.iter().filter(|feature| feature.without.is_impossible());
    required.map(|&feature| try_feature(kernel, feature)).collect()
}

pub fn try_feature(kernel: &impl Kernel, feature: Feature) -> FeatureState {
    let mut found = Found::Off;
    for &need in feature.needs {
        match kernel.has(need) {
            Ok(true) => return FeatureState { feature, found: Found::On },
            Ok(false) => {}
            Err(why) => found = Found::NotTried(why),
        }
    }
    FeatureState { feature, found }
}

/// Why nothing can be captured, if a feature is missing that everything needs. One that could not be tried does not
/// count: why not is a problem of its own.
pub fn refusal(states: &[FeatureState]) -> Result<String, Problem> {
    let required = || states.iter().filter(|state| state.is_required());
    let missing: Vec<&FeatureState> = required().filter(|state| state.found == Found::Off).collect();
    let Some(newest) = missing.iter().map(|state| state.feature.since).max_by_key(|since| version_of(since)) else {
        let untried = required().filter(|state| state.found != Found::On).count();
        let count = required().count();
        return Ok(match untried {
            0 => format!("all {count} that nothing can be captured without"),
            _ => format!("{untried} of {count} could not be tried"),
        });
    };
    let told: Vec<String> = missing
        .iter()
        .map(|state| format!("{} ({}): {}", state.feature.name, state.needs(), state.feature.without.as_str()))
        .collect();
    Err(Problem {
        what: format!("this kernel lacks {}", told.join("; ")),
        hint: format!("use Linux {newest} or later, or a kernel whose distributor has added what is missing"),
    })
}

fn version_of(release: &str) -> Vec<u32> {
    release.split('.').filter_map(|part| part.parse().ok()).collect()
}

/// The kernel that runs here.
pub struct RunningKernel {
    types: Option<Btf<'static>>,
    /// Why no program can be loaded: the kernel's answers would mean nothing.
    untried: Option<String>,
}

impl RunningKernel {
    pub fn look() -> Self {
        Self { types: Btf::from_vmlinux().ok(), untried: privilege().err().map(|problem| problem.what) }
    }

    fn types(&self) -> Result<&Btf<'static>, String> {
        self.types.as_ref().ok_or_else(|| "the kernel does not describe its types".to_owned())
    }

    fn try_out(&self, probe: impl FnOnce() -> Result<bool, String>) -> Result<bool, String> {
        self.untried.clone().map_or_else(|| quietly(probe), Err)
    }

    fn typed_tracepoint(&self, name: &str) -> Result<Option<Typedef<'_>>, String> {
        Ok(self.types()?.type_by_name(&format!("btf_trace_{name}")))
    }

    /// How many arguments a tracepoint hands over.
    pub fn arguments_of(&self, tracepoint: &str) -> Option<usize> {
        let pointer = Ptr::try_from(self.typed_tracepoint(tracepoint).ok()??.referenced_type()).ok()?;
        let function = FuncProto::try_from(pointer.referenced_type()).ok()?;
        // The first one says who listens.
        Some(function.iter().len().saturating_sub(1))
    }
}

impl Kernel for RunningKernel {
    fn has(&self, need: Need) -> Result<bool, String> {
        let told = |error: libbpf_rs::Error| error.to_string();
        match need {
            Need::Map(kind, _) => self.try_out(|| kind.is_supported().map_err(told)),
            Need::Helper(id, _) => self.try_out(|| ProgramType::Kprobe.is_helper_supported(id).map_err(told)),
            Need::FetchingAtomics => self.try_out(loads_fetching_atomics),
            Need::Attach(path) => self.try_out(|| Ok(Yardstick::attaches(path))),
            Need::Tracepoint(name) => Ok(self.typed_tracepoint(name)?.is_some()),
            Need::KernelFunction(name) => Ok(self.types()?.type_by_name::<Func<'_>>(name).is_some()),
            Need::KernelStruct(name) => Ok(self.types()?.type_by_name::<Struct<'_>>(name).is_some()),
            Need::KernelMember(of, member) => {
                let of: Option<Struct<'_>> = self.types()?.type_by_name(of);
                Ok(of.is_some_and(|of| of.iter().any(|one| one.name.is_some_and(|name| name == member))))
            }
        }
    }
}

/// What a kernel does not have is no news.
pub fn quietly<T>(attempt: impl FnOnce() -> T) -> T {
    let loud = libbpf_rs::set_print(None);
    let result = attempt();
    libbpf_rs::set_print(loud);
    result
}

/// Loads a program that adds nothing to nothing and asks what was there before.
fn loads_fetching_atomics() -> Result<bool, String> {
    const ZERO_R1: u64 = 0x01b7;
    const STORE_R1: u64 = 0xfff8_1a7b;
    const FETCH_AND_ADD_R1: u64 = 0x0000_0001_fff8_1adb;
    const ZERO_R0: u64 = 0x00b7;
    const EXIT: u64 = 0x0095;
    let program = [ZERO_R1, STORE_R1, FETCH_AND_ADD_R1, ZERO_R0, EXIT];
    // SAFETY: an instruction is 8 bytes long and an array of them as aligned as needed; both strings and the array outlive
    // the call, and there are no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            c"atomics".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr().cast(),
            program.len() as _,
            std::ptr::null_mut(),
        )
    };
    if fd >= 0 {
        // SAFETY: the descriptor is new and nobody else's.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Ok(true);
    }
    let error = io::Error::from_raw_os_error(-fd);
    if error.raw_os_error() == Some(libc::EINVAL) { Ok(false) } else { Err(error.to_string()) }
}

#[cfg(test)]
mod tests;
