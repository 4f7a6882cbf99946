//! What a process's cgroup lets it use.

use std::path::{Path, PathBuf};

/// `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPUs: 0.5 is half of one.
    pub cpus: Option<f64>,
    /// Bytes.
    pub memory: Option<u64>,
}

/// Where a controller's files lie, in the version 1 and version 2 layouts.
const MOUNT: &str = "/sys/fs/cgroup";

/// Version 1 says "no limit" with the largest number of pages that fits.
const NO_MEMORY_LIMIT: u64 = 1 << 60;

/// The tightest limits of a process's cgroup and those above it, from its `/proc/PID/cgroup`.
pub fn limits(cgroup_file: &str) -> Limits {
    limits_under(Path::new(MOUNT), cgroup_file)
}

fn limits_under(mount: &Path, cgroup_file: &str) -> Limits {
    let mut tightest = Limits::default();
    for line in cgroup_file.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        for folder in folders(mount, controllers, path) {
            tightest.tighten(read_limits(&folder));
        }
    }
    tightest
}

impl Limits {
    fn tighten(&mut self, other: Self) {
        self.cpus = [self.cpus, other.cpus].into_iter().flatten().min_by(f64::total_cmp);
        self.memory = [self.memory, other.memory].into_iter().flatten().min();
    }
}

/// The cgroup's folder and all above it.
fn folders(mount: &Path, controllers: &str, path: &str) -> Vec<PathBuf> {
    let root = match controllers {
        "" if mount.join("unified").exists() => mount.join("unified"),
        "" => mount.to_owned(),
        controllers => mount.join(controllers),
    };
    let inside = root.join(path.trim_start_matches('/'));
    inside.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_path_buf).collect()
}

fn read_limits(folder: &Path) -> Limits {
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
    let share = |quota: u64, period: u64| (period > 0).then(|| quota as f64 / period as f64);
    let version_2 = text("cpu.max").and_then(|max| {
        let (quota, period) = max.trim().split_once(' ')?;
        share(quota.parse().ok()?, period.parse().ok()?)
    });
    // Version 1 has -1 for no quota, which is no `u64`.
    let version_1 = || share(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    let memory = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
    Limits { cpus: version_2.or_else(version_1), memory: memory.filter(|&bytes| bytes < NO_MEMORY_LIMIT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "a/cpu.max", "150000 100000\n");
        write(root.path(), "a/b/cpu.max", "max 100000\n");
        write(root.path(), "a/b/memory.max", "1048576\n");
        let limits = limits_under(root.path(), "0::/a/b\n");
        assert_eq!(limits, Limits { cpus: Some(1.5), memory: Some(1 << 20) });
    }

    #[test]
    fn version_1_is_read_by_controller_and_minus_one_is_no_quota() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu/x/cpu.cfs_quota_us", "25000\n");
        write(root.path(), "cpu/x/cpu.cfs_period_us", "50000\n");
        write(root.path(), "memory/y/memory.limit_in_bytes", "9223372036854771712\n");
        let file = "4:memory:/y\n1:cpu:/x\n0::/\n";
        assert_eq!(limits_under(root.path(), file), Limits { cpus: Some(0.5), memory: None });
        write(root.path(), "cpu/x/cpu.cfs_quota_us", "-1\n");
        assert_eq!(limits_under(root.path(), file), Limits::default());
    }

    #[test]
    fn no_cgroups_are_no_limits() {
        assert_eq!(limits_under(Path::new("/nonexistent"), "garbage\n0::\n"), Limits::default());
    }
}
