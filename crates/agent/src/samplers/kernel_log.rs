//! What the drivers of NVIDIA's GPUs report in the kernel's log: an Xid and the process that it is about.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuwhy_model::Sample;

use super::{Measured, Sampler, names};

/// How such a line begins; the address of the GPU comes next.
const XID: &str = "NVRM: Xid (PCI:";

/// The kernel hands out one record at a time, and none is longer.
const MOST_BYTES: usize = 8192;

/// To look whether there is anything costs next to nothing.
const READ_EVERY: Duration = Duration::from_millis(250);

/// A log that is written faster is not read to its end.
const MOST_AT_ONCE: usize = 10_000;

struct KernelLog {
    log: File,
    /// Where the driver lists its GPUs by their addresses.
    gpus: PathBuf,
}

/// Only where the log may be read. A driver may be loaded later.
pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    let log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(root.join("dev/kmsg"));
    let mut log = log.ok()?;
    // What is there already is not about this trace.
    log.seek(SeekFrom::End(0)).ok()?;
    Some(Box::new(KernelLog { log, gpus: root.join("proc/driver/nvidia/gpus") }))
}

impl Sampler for KernelLog {
    fn every(&self) -> Duration {
        READ_EVERY
    }

    fn measure(&mut self) -> Vec<Measured> {
        let mut measured = Vec::new();
        let mut record = [0; MOST_BYTES];
        for _ in 0..MOST_AT_ONCE {
            match self.log.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    let reported = reported(&String::from_utf8_lossy(&record[..length]));
                    measured.extend(reported.into_iter().flat_map(|xid| self.samples(xid)));
                }
                // Older records made room for new ones.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        measured
    }
}

impl KernelLog {
    fn samples(&self, xid: Xid) -> Vec<Measured> {
        let device = self.number(&xid.address).unwrap_or(xid.address);
        let one = |name, value| Measured { name, unit: "", device: Some(device.clone()), value, at_ns: None };
        let pid = xid.pid.map(|pid| one(Sample::GPU_XID_PID, pid.into()));
        [one(Sample::GPU_XID, xid.code.into())].into_iter().chain(pid).collect()
    }

    /// GPUs are numbered in the order of their addresses.
    fn number(&self, address: &str) -> Option<String> {
        let at = names(&self.gpus).iter().position(|name| name.to_ascii_lowercase().starts_with(address))?;
        Some(at.to_string())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Xid {
    address: String,
    code: u32,
    pid: Option<u32>,
}

/// `NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=python, GPU has fallen off the bus.`
fn reported(record: &str) -> Option<Xid> {
    let (address, rest) = record.split_once(XID)?.1.split_once("): ")?;
    let is_number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let pid = rest.split_once("pid=").and_then(|(_, pid)| is_number(pid.trim_start_matches('\'')));
    Some(Xid { address: address.to_ascii_lowercase(), code: is_number(rest)?, pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_the_driver_is_told_apart_from_everything_else() {
        let line =
            "3,1234,5678901,-;NVRM: Xid (PCI:0000:65:00): 79, pid=4711, name=python, GPU has fallen off the bus.\n";
        let xid = |pid| Xid { address: "0000:65:00".to_owned(), code: 79, pid };
        assert_eq!(reported(line), Some(xid(Some(4711))));
        assert_eq!(reported("NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>"), Some(xid(None)));
        assert_eq!(reported("NVRM: Xid (PCI:0000:65:00): 79"), Some(xid(None)));
        for other in ["", "6,1,2,-;NVRM: loading", "NVRM: Xid (PCI:0000:65:00", "NVRM: Xid (PCI:x): y, pid=3"] {
            assert_eq!(reported(other), None, "{other}");
        }
    }

    #[test]
    fn a_gpu_has_the_number_of_its_address_among_all() {
        let root = tempfile::tempdir().unwrap();
        for address in ["0000:65:00.0", "0000:17:00.0"] {
            std::fs::create_dir_all(root.path().join("proc/driver/nvidia/gpus").join(address)).unwrap();
        }
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kmsg"), "").unwrap();
        let mut log = open(root.path()).unwrap();
        let line = "NVRM: Xid (PCI:0000:65:00): 94, pid=7";
        std::fs::write(root.path().join("dev/kmsg"), line).unwrap();
        let told: Vec<_> = log.measure().into_iter().map(|one| (one.name, one.device.unwrap(), one.value)).collect();
        assert_eq!(told, [(Sample::GPU_XID, "1".to_owned(), 94.0), (Sample::GPU_XID_PID, "1".to_owned(), 7.0)]);
    }
}
