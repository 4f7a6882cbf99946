//! What the driver of AMD's GPUs says of them in its files. A host without any has no such files.
//!
//! How busy one is, is a mean of the firmware's over a time that it does not tell. So it has a name of its own, and the
//! ledger of a GPU's time does not go by it.

use std::path::{Path, PathBuf};

use super::{Measured, Sampler, names, number_in};

const CARDS: &str = "sys/class/drm";
const VENDOR: &str = "0x1002";

/// Each value: its name here, the file it is in, its unit, and what one of it is worth.
const VALUES: &[(&str, &str, &str, f64)] = &[
    ("gpu.load", "gpu_busy_percent", "share", 0.01),
    ("gpu.memory.load", "mem_busy_percent", "share", 0.01),
    ("gpu.memory.used", "mem_info_vram_used", "bytes", 1.0),
];

/// The same of its sensors, which have a folder with a number.
const SENSORS: &[(&str, &str, &str, f64)] = &[
    ("gpu.power", "power1_average", "W", 1e-6),
    ("gpu.power", "power1_input", "W", 1e-6),
    ("gpu.temperature", "temp1_input", "C", 1e-3),
    ("gpu.clock", "freq1_input", "Hz", 1.0),
];

/// A GPU by its address on the bus, which no GPU of another vendor has.
struct Gpu {
    address: String,
    folder: PathBuf,
    sensors: Vec<PathBuf>,
}

pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    let gpus = gpus(&root.join(CARDS));
    (!gpus.is_empty()).then(|| Box::new(gpus) as Box<dyn Sampler>)
}

/// A card has its device's folder; so have its connectors, for which it is that of the card.
fn gpus(cards: &Path) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    for name in names(cards) {
        let is_card = name.strip_prefix("card").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let device = cards.join(name).join("device");
        let vendor = std::fs::read_to_string(device.join("vendor")).unwrap_or_default();
        if !is_card || vendor.trim() != VENDOR {
            continue;
        }
        let folder = device.canonicalize().unwrap_or(device);
        let address = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sensors = folder.join("hwmon");
        gpus.push(Gpu { address, sensors: names(&sensors).iter().map(|name| sensors.join(name)).collect(), folder });
    }
    gpus
}

impl Sampler for Vec<Gpu> {
    fn measure(&mut self) -> Vec<Measured> {
        self.iter().flat_map(Gpu::measure).collect()
    }
}

impl Gpu {
    fn measure(&self) -> Vec<Measured> {
        let mut measured = read(VALUES, &self.folder, &self.address);
        for folder in &self.sensors {
            measured.extend(read(SENSORS, folder, &self.address));
        }
        // Newer drivers tell the same power in two files.
        measured.dedup_by_key(|one| one.name);
        measured
    }
}

fn read(values: &[(&'static str, &str, &'static str, f64)], folder: &Path, address: &str) -> Vec<Measured> {
    let one = |&(name, file, unit, worth): &(&'static str, &str, &'static str, f64)| {
        let value = number_in(&folder.join(file))? * worth;
        Some(Measured { name, unit, device: Some(address.to_owned()), value, at_ns: None })
    };
    values.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(root: &Path, vendor: &str) {
        let device = root.join("sys/devices/pci0000:00/0000:03:00.0");
        let write = |file: &str, text: &str| {
            let path = device.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("vendor", vendor);
        write("gpu_busy_percent", "37\n");
        write("mem_info_vram_used", "1048576\n");
        write("mem_busy_percent", "not supported\n");
        write("hwmon/hwmon4/power1_average", "250000000\n");
        write("hwmon/hwmon4/power1_input", "251000000\n");
        write("hwmon/hwmon4/temp1_input", "61000\n");
        for card in ["card1", "card1-DP-1", "renderD128"] {
            std::fs::create_dir_all(root.join(CARDS).join(card)).unwrap();
            symlink(&device, root.join(CARDS).join(card).join("device")).unwrap();
        }
    }

    #[test]
    fn each_gpu_is_measured_once_and_named_by_its_address() {
        let root = tempfile::tempdir().unwrap();
        tree(root.path(), "0x1002\n");
        let measured = open(root.path()).unwrap().measure();
        let told: Vec<_> =
            measured.iter().map(|one| (one.name, one.device.as_deref().unwrap(), one.value.round())).collect();
        assert_eq!(
            told,
            [
                ("gpu.load", "0000:03:00.0", 0.0),
                ("gpu.memory.used", "0000:03:00.0", 1_048_576.0),
                ("gpu.power", "0000:03:00.0", 250.0),
                ("gpu.temperature", "0000:03:00.0", 61.0),
            ]
        );
        assert!((measured[0].value - 0.37).abs() < 1e-9);
    }

    #[test]
    fn cards_of_others_and_hosts_without_cards_have_no_samples() {
        let root = tempfile::tempdir().unwrap();
        assert!(open(root.path()).is_none());
        tree(root.path(), "0x10de\n");
        assert!(open(root.path()).is_none());
    }
}
