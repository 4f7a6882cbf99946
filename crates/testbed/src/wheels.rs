//! The vendor's own runtime library and headers, from the wheels it publishes: fetched once into a cache outside the
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

    /// The wheel's files, downloaded when the cache does not have them. Whoever comes first puts them in place.
    fn unpacked(&self) -> Result<PathBuf> {
        let cache = cache_dir()?.join("wheels");
        let place = cache.join(format!("{}-{}", self.package, self.version));
        if place.is_dir() {
            return Ok(place);
        }
        let thread = std::thread::current().id();
        let partial = cache.join(format!(".{}-{}-{thread:?}", self.package, process::id()));
        fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
        let fetched = self.fetch_into(&partial);
        if fetched.is_ok() && fs::rename(partial.join("files"), &place).is_err() && !place.is_dir() {
            bail!("move the files of {} to {}", self.package, place.display());
        }
        fs::remove_dir_all(&partial)?;
        fetched.map(|()| place)
    }

    fn fetch_into(&self, folder: &Path) -> Result<()> {
        let requirement = format!("{}=={}", self.package, self.version);
        let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--timeout", "60", "--no-deps"];
        run(Command::new("python3").args(pip).arg("--dest").arg(folder).arg(&requirement))?;
        let wheel = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .with_context(|| format!("pip left no wheel of {requirement}"))?;
        run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(folder.join("files")))
    }
}

/// A file of one of Debian's packages, fetched and unpacked into the cache without what the package depends on.
pub fn debian_file(package: &str, file: &str) -> Result<PathBuf> {
    let place = cache_dir()?.join("debian").join(package);
    if !place.is_dir() {
        let partial = place.with_extension(process::id().to_string());
        fs::create_dir_all(&partial).with_context(|| format!("create {}", partial.display()))?;
        let download = || run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(&partial));
        // The lists of packages may be old, or not there.
        download().or_else(|_| run(Command::new("apt-get").args(["update", "-qq"])).and_then(|()| download()))?;
        let archive = fs::read_dir(&partial)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("apt-get left no package {package}"))?;
        run(Command::new("dpkg-deb").arg("-x").arg(archive).arg(partial.join("files")))?;
        // Whoever comes first puts it in place.
        if fs::rename(partial.join("files"), &place).is_err() && !place.is_dir() {
            bail!("move the files of {package} to {}", place.display());
        }
        fs::remove_dir_all(&partial)?;
    }
    Ok(place.join(file))
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
