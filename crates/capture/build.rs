//! Compiles each BPF object and generates its skeleton, and the stack walker for user space, which only tests link.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const OBJECTS: &[&str] = &["calls", "sched", "life", "memory", "ioctl", "block", "tcp", "yardstick"];

/// Newest first; BPF wants clang 15 or later.
const COMPILERS: &[&str] = &["clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("src/bpf");
    println!("cargo:rerun-if-changed={}", source.display());
    let clang = COMPILERS
        .iter()
        .find(|name| find_in_path(name))
        .ok_or("no clang found; hint: apt-get install clang-19 (./dev does it)")?;
    let multiarch = format!("/usr/include/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH")?);
    for object in OBJECTS {
        libbpf_cargo::SkeletonBuilder::new()
            .source(source.join(format!("{object}.bpf.c")))
            .clang(clang)
            // 32-bit arithmetic and jumps: fewer instructions, and every kernel we run on has them.
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-I", &multiarch])
            .build_and_generate(out.join(format!("{object}.skel.rs")))
            .map_err(|error| format!("{object}.bpf.c: {error:#}"))?;
    }
    compile_walker(clang, &source, &out)
}

/// For tests and nobody else, but a build script does not know who asks.
fn compile_walker(clang: &str, source: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let (object, library) = (out.join("unwind_user.o"), out.join("libunwind_user.a"));
    let flags = ["-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c"];
    run(Command::new(clang).args(flags).arg(source.join("unwind_user.c")).arg("-o").arg(&object))?;
    if library.exists() {
        fs::remove_file(&library)?;
    }
    run(Command::new("ar").arg("crs").arg(&library).arg(&object))?;
    println!("cargo:rustc-link-search=native={}", out.display());
    Ok(())
}

fn run(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

fn find_in_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).exists()))
}
