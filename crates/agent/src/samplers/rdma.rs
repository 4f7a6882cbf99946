//! Errors and traffic of RDMA ports, as their drivers count them since they were loaded. A host without any has no folder
//! for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Measured, Sampler, names, number_in};

const FOLDER: &str = "sys/class/infiniband";

/// Each counter: its name here, the file it is in, its unit, and what one of it is worth.
const COUNTERS: &[(&str, &str, &str, f64)] = &[
    ("rdma.port_xmit_data", "counters/port_xmit_data", "bytes", WORD),
    ("rdma.port_rcv_data", "counters/port_rcv_data", "bytes", WORD),
    ("rdma.port_xmit_wait", "counters/port_xmit_wait", "", 1.0),
    ("rdma.port_rcv_errors", "counters/port_rcv_errors", "", 1.0),
    ("rdma.port_xmit_discards", "counters/port_xmit_discards", "", 1.0),
    ("rdma.symbol_error", "counters/symbol_error", "", 1.0),
    ("rdma.link_downed", "counters/link_downed", "", 1.0),
    ("rdma.link_error_recovery", "counters/link_error_recovery", "", 1.0),
    ("rdma.local_link_integrity_errors", "counters/local_link_integrity_errors", "", 1.0),
    ("rdma.out_of_sequence", "hw_counters/out_of_sequence", "", 1.0),
    ("rdma.packet_seq_err", "hw_counters/packet_seq_err", "", 1.0),
    ("rdma.local_ack_timeout_err", "hw_counters/local_ack_timeout_err", "", 1.0),
    ("rdma.rnr_nak_retry_err", "hw_counters/rnr_nak_retry_err", "", 1.0),
    ("rdma.np_cnp_sent", "hw_counters/np_cnp_sent", "", 1.0),
    ("rdma.rp_cnp_handled", "hw_counters/rp_cnp_handled", "", 1.0),
    ("rdma.np_ecn_marked_roce_packets", "hw_counters/np_ecn_marked_roce_packets", "", 1.0),
];

/// Data is counted in units of four bytes.
const WORD: f64 = 4.0;

struct Rdma {
    folder: PathBuf,
}

pub fn open(root: &Path) -> Option<Box<dyn Sampler>> {
    let folder = root.join(FOLDER);
    let has_ports = !ports(&folder).is_empty();
    has_ports.then(|| Box::new(Rdma { folder }) as Box<dyn Sampler>)
}

impl Sampler for Rdma {
    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// Ports come and go with their drivers.
    fn measure(&mut self) -> Vec<Measured> {
        let mut measured = Vec::new();
        for (name, port) in ports(&self.folder) {
            let transport = std::fs::read_to_string(port.join("link_layer")).unwrap_or_default();
            let device = format!("{name}/{}", transport.trim());
            for &(name, file, unit, worth) in COUNTERS {
                measured.extend(number_in(&port.join(file)).map(|count| Measured {
                    name,
                    unit,
                    device: Some(device.clone()),
                    value: count * worth,
                    at_ns: None,
                }));
            }
        }
        measured
    }
}

/// `mlx5_0/1` and its folder, for each port of each device.
fn ports(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut ports = Vec::new();
    for device in names(folder) {
        for port in names(&folder.join(&device).join("ports")) {
            ports.push((format!("{device}/{port}"), folder.join(&device).join("ports").join(&port)));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuwhy_model::Sample;

    #[test]
    fn every_error_that_is_looked_at_is_measured() {
        let is_counted = |name: &&&str| COUNTERS.iter().any(|(counter, ..)| counter == *name);
        assert_eq!(Sample::FABRIC_ERRORS.iter().filter(is_counted).count(), Sample::FABRIC_ERRORS.len());
    }

    #[test]
    fn every_port_has_its_counters_and_its_transport() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(FOLDER).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(open(root.path()).is_none());
        write("mlx5_0/ports/1/link_layer", "InfiniBand\n");
        write("mlx5_0/ports/1/counters/port_rcv_errors", "3\n");
        write("mlx5_0/ports/1/counters/port_xmit_data", "1000\n");
        write("mlx5_1/ports/1/link_layer", "Ethernet\n");
        write("mlx5_1/ports/1/hw_counters/out_of_sequence", "7\n");
        write("mlx5_1/ports/1/hw_counters/np_cnp_sent", "not a number\n");
        let measured = open(root.path()).unwrap().measure();
        let told: Vec<_> = measured.iter().map(|one| (one.name, one.device.as_deref().unwrap(), one.value)).collect();
        assert_eq!(
            told,
            [
                ("rdma.port_xmit_data", "mlx5_0/1/InfiniBand", 4000.0),
                ("rdma.port_rcv_errors", "mlx5_0/1/InfiniBand", 3.0),
                ("rdma.out_of_sequence", "mlx5_1/1/Ethernet", 7.0),
            ]
        );
    }
}
