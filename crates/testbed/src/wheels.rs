//! The vendor's own libraries and headers, from the wheels it publishes: fetched once into a cache outside the
//! source tree, never part of it.

use anyhow::{Context, Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// A published release of the CUDA runtime.
#[derive(Clone, Copy, Debug)]
pub struct CudaRuntime {
    package: &'static str,
    version: &'static str,
    /// Where its files lie inside the wheel.
    folder: &'static str,
    library: &'static str,
}

impl CudaRuntime {
    pub const V12: Self = Self {
        package: "nvidia-cuda-runtime-cu12",
        version: "12.9.79",
        folder: "nvidia/cuda_runtime",
        library: "libcudart.so.12",
    };
    pub const V13: Self =
        Self { package: "nvidia-cuda-runtime", version: "13.4.92", folder: "nvidia/cu13", library: "libcudart.so.13" };

    /// The library file.
    pub fn library(&self) -> Result<PathBuf> {
        Ok(self.unpacked()?.join(self.folder).join("lib").join(self.library))
    }

    /// The folder with `cuda.h` and `cuda_runtime_api.h`.
    pub fn include(&self) -> Result<PathBuf> {
        Ok(self.unpacked()?.join(self.folder).join("include"))
    }

    fn unpacked(&self) -> Result<PathBuf> {
        wheel(self.package, self.version)
    }
}

/// NCCL as PyTorch's wheels bring it, newer than any of them.
pub fn real_libnccl() -> Result<PathBuf> {
    Ok(wheel("nvidia-nccl-cu12", "2.32.3")?.join("nvidia/nccl/lib/libnccl.so.2"))
}

/// A wheel's files, downloaded when the cache does not have them.
fn wheel(package: &str, version: &str) -> Result<PathBuf> {
    unpacked("wheels", &format!("{package}-{version}"), |folder| {
        let requirement = format!("{package}=={version}");
        let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--timeout", "60", "--no-deps"];
        run(Command::new("python3").args(pip).arg("--dest").arg(folder).arg(&requirement))?;
        let wheel = downloaded(folder, "whl").with_context(|| format!("pip left no wheel of {requirement}"))?;
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder.join("files")))
    })
}

/// A file of one of Debian's packages, fetched and unpacked into the cache without what the package depends on.
pub fn debian_file(package: &str, file: &str) -> Result<PathBuf> {
    let fetch = |folder: &Path| {
        let download = || run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(folder));
        // The lists of packages may be old, or not there.
        download().or_else(|_| run(Command::new("apt-get").args(["update", "-qq"])).and_then(|()| download()))?;
        let archive = downloaded(folder, "deb").with_context(|| format!("apt-get left no package {package}"))?;
        run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(folder.join("files")))
    };
    Ok(unpacked("debian", package, fetch)?.join(file))
}

/// What `fetch` leaves in `files` of a folder that it is given, unless the cache has it. Whoever comes first puts it in place.
fn unpacked(kind: &str, name: &str, fetch: impl Fn(&Path) -> Result<()>) -> Result<PathBuf> {
    let cache = cache_dir()?.join(kind);
    let place = cache.join(name);
    if place.is_dir() {
        return Ok(place);
    }
    let thread = std::thread::current().id();
    let partial = cache.join(format!(".{name}-{}-{thread:?}", process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
    let fetched = fetch(&partial);
    if fetched.is_ok() && fs::rename(partial.join("files"), &place).is_err() && !place.is_dir() {
        bail!("move the files of {name} to {}", place.display());
    }
    fs::remove_dir_all(&partial)?;
    fetched.map(|()| place)
}

/// The file of a kind that lies in a folder.
fn downloaded(folder: &Path, extension: &str) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| path.extension().is_some_and(|one| one == extension))
}

fn cache_dir() -> Result<PathBuf> {
    let own = env::var_os("GPUWHY_CACHE").map(PathBuf::from);
    let user = || env::var_os("XDG_CACHE_HOME").map(|dir| PathBuf::from(dir).join("gpuwhy"));
    let home = || env::var_os("HOME").map(|dir| PathBuf::from(dir).join(".cache/gpuwhy"));
    own.or_else(user).or_else(home).context("none of GPUWHY_CACHE, XDG_CACHE_HOME and HOME is set")
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
