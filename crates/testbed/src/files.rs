//! The built libraries and programs, carried inside this crate and written out where they are needed.

use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that the build made, by name.
macro_rules! built {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name)))
    };
}
#[cfg(feature = "stacks")]
pub(crate) use built;

const FILES: &[(&str, &[u8])] = &[
    built!("libcuda.so.1"),
    built!("libcuda_endbr.so.1"),
    built!("libcudart.so.12"),
    built!("libnccl.so.2"),
    built!("libnvidia-ml.so.1"),
    built!("ranks"),
    built!("workload"),
    built!("workload_static"),
    built!("bench_calls"),
    built!("launch_loop"),
    built!("scenario"),
    built!("scenario_peer"),
    ("workload.py", include_bytes!("../c/workload.py")),
    ("scenario.py", include_bytes!("../c/scenario.py")),
];

/// A folder with the fake libraries and the workloads. Probes attach to inodes, so every test unpacks its own.
#[derive(Clone, Debug)]
pub struct Testbed {
    dir: PathBuf,
}

impl Testbed {
    /// Writes all files into `dir`, which exists.
    pub fn unpack(dir: &Path) -> Result<Self> {
        unpack_files(FILES, dir)?;
        Ok(Self { dir: dir.canonicalize()? })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn libcuda(&self) -> PathBuf {
        self.dir.join("libcuda.so.1")
    }

    /// The driver library with `endbr64` before every function's first `push`.
    pub fn libcuda_endbr(&self) -> PathBuf {
        self.dir.join("libcuda_endbr.so.1")
    }

    pub fn libcudart(&self) -> PathBuf {
        self.dir.join("libcudart.so.12")
    }

    pub fn libnccl(&self) -> PathBuf {
        self.dir.join("libnccl.so.2")
    }

    /// Linked with libnccl: several processes that are the ranks of one job.
    pub fn ranks(&self) -> PathBuf {
        self.dir.join("ranks")
    }

    /// Loads the libraries with `dlopen`.
    pub fn workload(&self) -> PathBuf {
        self.dir.join("workload")
    }

    /// The same with the runtime linked in and none of its symbols exported.
    pub fn workload_static(&self) -> PathBuf {
        self.dir.join("workload_static")
    }

    /// Linked with libcuda, so that the library is mapped when the program starts.
    pub fn bench_calls(&self) -> PathBuf {
        self.dir.join("bench_calls")
    }

    /// Linked with libcuda too.
    pub fn launch_loop(&self) -> PathBuf {
        self.dir.join("launch_loop")
    }

    pub fn workload_py(&self) -> PathBuf {
        self.dir.join("workload.py")
    }

    /// Linked with libcuda too.
    pub fn scenario(&self) -> PathBuf {
        self.dir.join("scenario")
    }

    /// Uses no CUDA.
    pub fn scenario_peer(&self) -> PathBuf {
        self.dir.join("scenario_peer")
    }

    pub fn scenario_py(&self) -> PathBuf {
        self.dir.join("scenario.py")
    }
}

pub(crate) fn unpack_files(files: &[(&str, &[u8])], dir: &Path) -> Result<()> {
    for (name, content) in files {
        let path = dir.join(name);
        fs::write(&path, content).with_context(|| format!("unpack {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}
