//! Compiles the fake CUDA libraries and the workloads, which the crate embeds: whoever unpacks them needs no compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The real libraries keep frame pointers and start their functions with `push`.
const LIBRARY_FLAGS: &[&str] = &[
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-optimize-sibling-calls",
    "-fno-shrink-wrap",
    "-fno-schedule-insns",
    "-fno-schedule-insns2",
];
const DRIVER: &[&str] = &["fake_plan.c", "fake_waits.c", "fake_gpu.c", "fake_driver.c", "fake_context.c"];
const RUNTIME: &[&str] = &["fake_runtime.c", "fake_runtime_copies.c"];
const NVML: &[&str] = &["fake_nvml.c", "fake_nvml_health.c", "fake_nvml_slices.c"];
const WORKLOAD: &[&str] = &[
    "workload.c",
    "workload_calls.c",
    "workload_clocks.c",
    "workload_faults.c",
    "workload_libraries.c",
    "workload_mixes.c",
    "workload_ops.c",
    "workload_options.c",
    "workload_truth.c",
];
const LAUNCH_LOOP: &[&str] = &["launch_loop.c", "launch_loop_work.c", "launch_loop_slow.c", "workload_ops.c"];
const SCENARIO: &[&str] = &[
    "scenario.c",
    "scenario_calls.c",
    "scenario_cpu.c",
    "scenario_faults.c",
    "scenario_locks.c",
    "scenario_memory.c",
    "scenario_oom.c",
    "scenario_options.c",
    "scenario_peers.c",
    "scenario_plain.c",
    "scenario_ranks.c",
    "scenario_steps.c",
    "scenario_storage.c",
    "scenario_truth.c",
];
const SCENARIO_PEER: &[&str] = &[
    "scenario_peer.c",
    "scenario_peer_cgroup.c",
    "scenario_peer_checks.c",
    "scenario_peer_hogs.c",
    "scenario_peer_inputs.c",
];
const SCENARIO_BOTH: &[&str] = &["scenario_arguments.c", "scenario_disk.c", "scenario_shape.c", "scenario_work.c"];
/// Stacks of a scenario lead to the lines of its source: every call is one of its own, and none is a jump.
const SCENARIO_FLAGS: &[&str] = &["-g", "-fno-optimize-sibling-calls", "-fno-crossjumping", "-fno-ipa-icf"];
const WITNESS_C: &[&str] =
    &["stacks/witness_c.c", "stacks/situations_calls.c", "stacks/situations_frames.c", "stacks/situations_signals.c"];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rerun-if-env-changed=CXX");
    let compiler = Compiler::from_env();
    compiler.library("libcuda.so.1", DRIVER, &["-fcf-protection=none", "-Wl,-soname,libcuda.so.1"]);
    compiler.library("libcuda_endbr.so.1", DRIVER, &["-fcf-protection=full", "-Wl,-soname,libcuda.so.1"]);
    compiler.library(
        "libcudart.so.12",
        RUNTIME,
        &["-fcf-protection=none", "-Wl,-soname,libcudart.so.12", "-Wl,--version-script=c/libcudart.map"],
    );
    compiler.library(
        "libnccl.so.2",
        &["fake_nccl.c"],
        &["-fcf-protection=none", "-fno-omit-frame-pointer", "-Wl,-soname,libnccl.so.2"],
    );
    compiler.library("libnvidia-ml.so.1", NVML, &["-Wl,-soname,libnvidia-ml.so.1"]);
    compiler.program("ranks", &["ranks.c"], &[], &["libnccl.so.2"]);
    compiler.program("workload", WORKLOAD, &[], &[]);
    let linked_in = [WORKLOAD, RUNTIME].concat();
    compiler.program("workload_static", &linked_in, &["-DSTATIC_RUNTIME"], &[]);
    compiler.program("bench_calls", &["bench_calls.c"], &[], &["libcuda.so.1"]);
    compiler.program("launch_loop", LAUNCH_LOOP, &[], &["libcuda.so.1"]);
    compiler.program("scenario", &[SCENARIO, SCENARIO_BOTH].concat(), SCENARIO_FLAGS, &["libcuda.so.1"]);
    compiler.program("scenario_peer", &[SCENARIO_PEER, SCENARIO_BOTH].concat(), SCENARIO_FLAGS, &[]);
    if std::env::var_os("CARGO_FEATURE_STACKS").is_some() {
        build_witnesses(&compiler);
    }
}

/// The programs with known stacks, as distributions build programs, and with frame pointers.
fn build_witnesses(compiler: &Compiler) {
    let libraries = &["libwitness.so", "libcuda.so.1"];
    let shared = &["-g", "-fomit-frame-pointer", "-fPIC", "-shared"];
    let library = &[shared, &["-Wl,-soname,libwitness.so"][..]].concat();
    compiler.program("libwitness.so", &["stacks/witness.c"], library, &["libcuda.so.1"]);
    compiler.program("witness_c", WITNESS_C, &["-g", "-fomit-frame-pointer"], libraries);
    compiler.program("witness_c_frame_pointers", WITNESS_C, &["-g"], libraries);
    let nested_calls = &["stacks/nested_calls.c"];
    compiler.program("nested_calls", nested_calls, &["-fomit-frame-pointer"], &["libcuda.so.1"]);
    compiler.program("nested_calls_frame_pointers", nested_calls, &[], &["libcuda.so.1"]);
    compiler.cpp("witness_cpp", "stacks/witness_cpp.cpp", &["-g", "-fomit-frame-pointer"], libraries);
    compiler.cpp("libmixed.so", "stacks/mixed.cpp", shared, libraries);
    compiler.rust("witness_rust", "stacks/witness_rust.rs");
}

struct Compiler {
    command: String,
    out: PathBuf,
}

impl Compiler {
    fn from_env() -> Self {
        let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
        Self { command: std::env::var("CC").unwrap_or_else(|_| "cc".into()), out }
    }

    fn library(&self, name: &str, sources: &[&str], flags: &[&str]) {
        self.compile(name, sources, &[LIBRARY_FLAGS, flags].concat(), &[]);
    }

    fn program(&self, name: &str, sources: &[&str], flags: &[&str], libraries: &[&str]) {
        self.compile(name, sources, flags, libraries);
    }

    fn cpp(&self, name: &str, source: &str, flags: &[&str], libraries: &[&str]) {
        let mut command = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".into()));
        command.arg("-std=c++20");
        self.finish(command, name, &[source], flags, libraries);
    }

    /// For this machine, whatever the crate is built for: so are the C programs.
    fn rust(&self, name: &str, source: &str) {
        let mut command = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
        command.args(["--edition", "2024", "-C", "opt-level=2", "-g"]).arg(Path::new("c").join(source));
        self.run(command.arg("-o").arg(self.out.join(name)), name);
    }

    fn compile(&self, name: &str, sources: &[&str], flags: &[&str], libraries: &[&str]) {
        let mut command = Command::new(&self.command);
        command.arg("-std=gnu17");
        self.finish(command, name, sources, flags, libraries);
    }

    fn finish(&self, mut command: Command, name: &str, sources: &[&str], flags: &[&str], libraries: &[&str]) {
        command
            .args(["-O2", "-g1", "-Wall", "-Wextra", "-fno-omit-frame-pointer"])
            .args(flags)
            .args(sources.iter().map(|source| Path::new("c").join(source)))
            .args(libraries.iter().map(|library| self.out.join(library)))
            .args(["-lpthread", "-ldl", "-o"])
            .arg(self.out.join(name));
        self.run(&mut command, name);
    }

    fn run(&self, command: &mut Command, name: &str) {
        match command.status() {
            Ok(status) if status.success() => {}
            other => fail(&format!("{} could not build {name}: {other:?}", command.get_program().display())),
        }
    }
}

fn fail(reason: &str) -> ! {
    println!("cargo::error={reason}");
    std::process::exit(1);
}
