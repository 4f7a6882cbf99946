//! Traces with a size cap.

use std::path::Path;

use gpuwhy_store::{Options, Writer};

use super::session;

pub const CAP: u64 = 2 << 20;

/// The least cap there is.
pub const LEAST_CAP: u64 = 1 << 20;

pub fn capped(path: &Path, cap: u64) -> Writer {
    Writer::open(path, &session(), &Options { max_size: Some(cap) }).unwrap()
}

/// What a trace takes on the disk, its log included.
pub fn disk_bytes(path: &Path) -> u64 {
    let log = path.with_extension("db-wal");
    path.metadata().unwrap().len() + log.metadata().map_or(0, |found| found.len())
}

pub fn assert_under(path: &Path, cap: u64) {
    let bytes = disk_bytes(path);
    assert!(bytes <= cap, "{bytes} bytes");
}
