//! Compiles each BPF object and generates its skeleton.

use std::{env, error::Error, path::PathBuf};

const OBJECTS: &[&str] = &["calls", "sched", "life", "memory", "ioctl", "block", "yardstick"];

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
    Ok(())
}

fn find_in_path(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).exists()))
}
