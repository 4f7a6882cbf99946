//! Samples of metrics, labels of processes, and findings that are kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::Sample;
use gpuwhy_store::{Options, Trace, Writer};
use gpuwhy_window::{Device, GpuFaults, GpuLinkFault, GpuLost, LinkSlowed, Scope};
use support::*;

fn sample(offset_ns: u64, device: Option<&str>, value: f64) -> Sample {
    let device = device.map(str::to_owned);
    Sample { at_ns: START_NS + offset_ns, name: "gpu.power".into(), unit: "W".into(), device, value }
}

#[test]
fn samples_are_read_back_with_name_unit_and_device() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let samples =
        [sample(0, Some("0"), 80.5), sample(0, Some("1"), 90.0), sample(1, Some("0"), 81.0), sample(2, None, 7.0)];
    writer.samples(&samples).unwrap();
    writer.finish(&end()).unwrap();
    let sql =
        "SELECT at_ns - 1790000000000000000, name, device, value, unit, session_id FROM sample_values ORDER BY 1, 3";
    let expected =
        ["0 gpu.power 0 80.5 W 1", "0 gpu.power 1 90.0 W 1", "1 gpu.power 0 81.0 W 1", "2 gpu.power null 7.0 W 1"];
    assert_eq!(lines(&path, sql), expected);
    assert_eq!(number(&path, "SELECT count(*) FROM sample_series"), 3);
}

#[test]
fn a_later_value_of_the_same_moment_stays_and_what_is_no_number_is_not_kept() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    writer.samples(&[sample(0, None, 1.0), sample(0, None, 2.0), sample(1, None, f64::NAN)]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT value FROM sample_values"), ["2.0"]);
}

#[test]
fn under_a_size_cap_the_oldest_samples_go_first() {
    let (_directory, path) = temporary();
    let cap = 1 << 20;
    let mut writer = Writer::open(&path, &session(), &Options { max_size: Some(cap) }).unwrap();
    let most = 60_000;
    for first in (0..most).step_by(1000) {
        let samples: Vec<Sample> = (first..first + 1000).map(|at| sample(at, None, at as f64)).collect();
        writer.samples(&samples).unwrap();
        writer.commit(START_NS + first).unwrap();
    }
    writer.finish(&end()).unwrap();
    assert!(path.metadata().unwrap().len() <= cap);
    let kept = number(&path, "SELECT count(*) FROM samples");
    assert!((1000..most as i64).contains(&kept), "{kept}");
    assert_eq!(lines(&path, "SELECT max(value) FROM sample_values"), [format!("{}.0", most - 1)]);
}

#[test]
fn errors_of_a_fabric_are_what_its_counters_grew_by() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let counted = |seconds: u64, name: &str, port: &str, value: f64| Sample {
        at_ns: START_NS + seconds * 1_000_000_000,
        name: name.into(),
        unit: String::new(),
        device: Some(port.into()),
        value,
    };
    let samples = [
        counted(0, "rdma.symbol_error", "mlx5_0/1/InfiniBand", 7.0),
        counted(5, "rdma.symbol_error", "mlx5_0/1/InfiniBand", 9.0),
        counted(0, "rdma.symbol_error", "mlx5_1/1/InfiniBand", 7.0),
        counted(5, "rdma.symbol_error", "mlx5_1/1/InfiniBand", 7.0),
        counted(0, "rdma.port_xmit_data", "mlx5_0/1/InfiniBand", 1.0),
        counted(5, "rdma.port_xmit_data", "mlx5_0/1/InfiniBand", 1e9),
    ];
    writer.samples(&samples).unwrap();
    writer.finish(&end()).unwrap();
    let window = Trace::open(&path).unwrap().window(&Scope::default()).unwrap();
    let told = window.fabric_errors.iter().map(|errors| (errors.port.as_str(), errors.counter.as_str(), errors.count));
    assert_eq!(told.collect::<Vec<_>>(), [("mlx5_0/1/InfiniBand", "symbol_error", 2)]);
}

/// Faults of GPUs in a file with these samples: moments in milliseconds, names, devices and values.
fn faults(told: &[(u64, &str, &str, f64)]) -> Vec<(Device, GpuFaults)> {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let sample = |&(ms, name, device, value): &(u64, &str, &str, f64)| Sample {
        at_ns: START_NS + ms * 1_000_000,
        name: name.into(),
        unit: String::new(),
        device: Some(device.into()),
        value,
    };
    writer.samples(&told.iter().map(sample).collect::<Vec<_>>()).unwrap();
    writer.finish(&end()).unwrap();
    Trace::open(&path).unwrap().window(&Scope::default()).unwrap().gpu_faults.into_iter().collect()
}

#[test]
fn what_is_broken_of_a_gpu_is_what_it_says_itself() {
    let told = [
        (100, Sample::GPU_LOST, "0", 0.0),
        (300, Sample::GPU_LOST, "0", 1.0),
        (400, Sample::GPU_LOST, "0", 1.0),
        (300, Sample::GPU_LOST, "2", Sample::GPU_NEVER_THERE),
        (100, Sample::GPU_MOST_LINK_WIDTH, "1", 16.0),
        (100, Sample::GPU_LINK_WIDTH, "1", 8.0),
        (200, Sample::GPU_LINK_WIDTH, "1", 16.0),
        (300, Sample::GPU_LINK_WIDTH, "1", 4.0),
        (400, Sample::GPU_LINK_WIDTH, "1", 4.0),
        (200, Sample::GPU_NVLINK_DOWN, "1/11", 1.0),
        (200, Sample::GPU_NVLINK_ERRORS[2], "1/3", 5.0),
        (300, Sample::GPU_NVLINK_ERRORS[2], "1/3", 7.0),
        (300, Sample::GPU_NVLINK_ERRORS[0], "1/3", 2.0),
        (100, Sample::GPU_PAGES_PENDING, "1", 0.0),
        (300, Sample::GPU_PAGES_PENDING, "1", 1.0),
        (300, Sample::GPU_ROWS_FAILED, "1", 1.0),
    ];
    let at = |number| Device { host: 0, number };
    let at_ns = START_NS + 300_000_000;
    let lost = |had_answered| GpuFaults { lost: Some(GpuLost { at_ns, had_answered }), ..GpuFaults::default() };
    let links = vec![
        GpuLinkFault { number: 3, replays: 2, damaged: 12, ..GpuLinkFault::default() },
        GpuLinkFault { number: 11, is_down: true, ..GpuLinkFault::default() },
    ];
    let broken = GpuFaults {
        link_width: Some(LinkSlowed { moments: 4, slow: 3, last_slow: 2, least: 4, most: 16 }),
        links,
        repair_pending: true,
        repair_is_new: true,
        repair_failed: true,
        ..GpuFaults::default()
    };
    assert_eq!(faults(&told), [(at(0), lost(true)), (at(1), broken), (at(2), lost(false))]);
}

#[test]
fn a_gpu_that_does_all_that_it_can_and_one_that_is_idle_are_not_broken() {
    let told = [
        (100, Sample::GPU_LOST, "0", 0.0),
        (100, Sample::GPU_MOST_LINK, "0", 5.0),
        (100, Sample::GPU_WORKING_LINK, "0", 5.0),
        (200, "gpu.pcie.generation", "0", 1.0),
        (100, Sample::GPU_MOST_LINK_WIDTH, "0", 16.0),
        (100, Sample::GPU_LINK_WIDTH, "0", 16.0),
        (100, Sample::GPU_ROWS_PENDING, "0", 0.0),
        (100, Sample::GPU_ROWS_FAILED, "0", 0.0),
    ];
    assert_eq!(faults(&told), []);
}

#[test]
fn labels_name_what_a_process_belongs_to() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.label(cast.process, "rank", "0").unwrap();
    writer.label(cast.process, "pod", "train-7").unwrap();
    writer.label(cast.process, "rank", "3").unwrap();
    writer.finish(&end()).unwrap();
    let sql = "SELECT pid, comm, key, value, session_id FROM labels ORDER BY key";
    assert_eq!(lines(&path, sql), ["100 python pod train-7 1", "100 python rank 3 1"]);
}
