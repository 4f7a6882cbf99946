//! The GPUs of the host, read from the driver's files in `/proc` without loading a library.

use std::path::Path;

/// GPUs in the order in which CUDA numbers them on a host with one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    pub gpus: Vec<Gpu>,
    pub driver: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub model: String,
    pub uuid: String,
    pub bus: String,
}

impl Gpus {
    pub fn read(proc_root: &Path) -> Self {
        let folder = proc_root.join("driver/nvidia");
        let mut gpus: Vec<Gpu> = std::fs::read_dir(folder.join("gpus"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let text = std::fs::read_to_string(entry.path().join("information")).ok()?;
                let field = |key: &str| {
                    let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
                    found.map(|value| value.trim().to_owned()).unwrap_or_default()
                };
                let bus = entry.file_name().to_string_lossy().into_owned();
                Some(Gpu { model: field("Model"), uuid: field("GPU UUID"), bus })
            })
            .collect();
        gpus.sort_by(|a, b| a.bus.cmp(&b.bus));
        Self { gpus, driver: driver_version(&folder.join("version")) }
    }

    /// A line for each, as a session keeps them.
    pub fn lines(&self) -> Vec<String> {
        self.gpus.iter().map(|gpu| format!("{} {} {}", gpu.model, gpu.uuid, gpu.bus)).collect()
    }

    /// The host's number of the GPU that a process numbers `ordinal`, given the process's CUDA_VISIBLE_DEVICES.
    pub fn host_number(&self, ordinal: Option<u16>, visible: Option<&str>) -> Option<u16> {
        let Some(ordinal) = ordinal else {
            // Unknown, unless there is only one it can be.
            return (self.gpus.len() == 1).then_some(0);
        };
        let Some(visible) = visible else { return Some(ordinal) };
        let name = visible.split(',').nth(ordinal.into())?.trim();
        if let Ok(number) = name.parse() {
            return Some(number);
        }
        let at = self.gpus.iter().position(|gpu| !name.is_empty() && gpu.uuid.starts_with(name))?;
        Some(at as u16)
    }
}

fn driver_version(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.split_ascii_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Gpus {
        let gpu = |uuid: &str, bus: &str| Gpu { model: "H200".into(), uuid: uuid.into(), bus: bus.into() };
        Gpus { gpus: vec![gpu("GPU-aa11", "0000:01"), gpu("GPU-bb22", "0000:02")], driver: None }
    }

    #[test]
    fn visible_devices_are_mapped_back_to_the_hosts_numbers() {
        let gpus = two();
        assert_eq!(gpus.host_number(Some(0), None), Some(0));
        assert_eq!(gpus.host_number(Some(0), Some("3")), Some(3));
        assert_eq!(gpus.host_number(Some(1), Some("5, 2")), Some(2));
        assert_eq!(gpus.host_number(Some(0), Some("GPU-bb22")), Some(1));
        assert_eq!(gpus.host_number(Some(0), Some("MIG-x")), None);
        assert_eq!(gpus.host_number(Some(7), Some("1")), None);
    }

    #[test]
    fn an_unknown_device_is_unknown_unless_there_is_only_one() {
        let mut gpus = two();
        assert_eq!(gpus.host_number(None, None), None);
        gpus.gpus.pop();
        assert_eq!(gpus.host_number(None, None), Some(0));
    }

    #[test]
    fn the_drivers_files_are_read() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("driver/nvidia/gpus/0000:0a:00.0");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("information"), "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1234\n").unwrap();
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n";
        std::fs::write(root.path().join("driver/nvidia/version"), version).unwrap();
        let gpus = Gpus::read(root.path());
        assert_eq!(gpus.lines(), ["NVIDIA H200 GPU-1234 0000:0a:00.0"]);
        assert_eq!(gpus.driver.as_deref(), Some("580.159.04"));
        assert_eq!(Gpus::read(Path::new("/nonexistent")), Gpus::default());
    }
}
