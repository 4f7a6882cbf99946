//! A disk that fills up costs calls, and never the file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuwhy_model::{Call, Frame, SessionEnd, Stack, Stretch};
use gpuwhy_store::{Options, StoreError, Writer};
use support::*;
use tempfile::TempDir;

/// A file system of a few MiB at most, unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(directory.path()).status();
        let is_mounted = mount.is_ok_and(|status| status.success());
        assert!(is_mounted, "this test mounts a disk and needs root; -E 'not test(root_)' leaves out all that do");
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// A trace that shares two MiB with a file of one.
    fn half_full(&self) -> (PathBuf, Writer) {
        let path = self.path().join("trace.db");
        let writer = writer(&path);
        std::fs::write(self.filler(), vec![0; 1 << 20]).unwrap();
        (path, writer)
    }

    /// Leaves no block to anybody.
    fn fill_up(&self) {
        let mut filler = File::options().append(true).create(true).open(self.filler()).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn assert_does_not_fit<T: std::fmt::Debug>(written: &Result<T, StoreError>) {
    assert!(matches!(written, Err(StoreError::DiskFull { .. })), "{written:?}");
}

fn batch(cast: &Cast, number: u64) -> Vec<Call> {
    (0..1000).map(|at| cast.call((number * 1000 + at) * 5_000)).collect()
}

#[test]
fn root_a_full_disk_is_told_and_what_was_committed_stays() {
    let disk = SmallDisk::mount("size=1m");
    let path = disk.path().join("trace.db");
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    writer.commit(START_NS).unwrap();
    let mut committed = 0;
    let error = loop {
        match writer.calls(&mut batch(&cast, committed)).and_then(|()| writer.commit(START_NS)) {
            Ok(()) => committed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(error.hint().is_some());
    assert!(committed > 0);
    assert_eq!(writer.take_not_written(), 1000);
    assert_eq!(writer.take_not_written(), 0);
    drop(writer);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM cuda_events"), committed as i64 * 1000);
    assert_eq!(number(&path, "SELECT stored FROM sessions"), committed as i64 * 1000);
}

#[test]
fn root_writing_goes_on_when_there_is_space_again() {
    let disk = SmallDisk::mount("size=2m");
    let (path, mut writer) = disk.half_full();
    // Who the calls are made by is known first in a transaction that fails.
    let cast = Cast::new(&mut writer);
    let written = writer.calls(&mut (0..40_000).map(|at| cast.call(at * 5_000)).collect::<Vec<_>>());
    assert_does_not_fit(&written.and_then(|()| writer.commit(START_NS)));
    assert_eq!(writer.take_not_written(), 40_000);
    disk.make_room();
    writer.calls(&mut batch(&cast, 1)).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT COUNT(*), MIN(comm), MIN(op) FROM cuda_events"), ["1000 python cuLaunchKernel"]);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn root_a_disk_without_a_free_block_has_room_for_the_last_words() {
    let disk = SmallDisk::mount("size=2m");
    let (path, mut writer) = disk.half_full();
    let cast = Cast::new(&mut writer);
    writer.calls(&mut batch(&cast, 0)).unwrap();
    writer.commit(START_NS).unwrap();
    disk.fill_up();
    assert_does_not_fit(&writer.calls(&mut batch(&cast, 1)).and_then(|()| writer.commit(START_NS)));
    writer.finish(&SessionEnd { reason: "the disk is full".into(), ..end() }).unwrap();
    assert_eq!(lines(&path, "SELECT stored, end_reason FROM sessions"), ["1000 the disk is full"]);
    assert_eq!(integrity(&path), "ok");
    let left: Vec<_> = std::fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "filler" || name.to_str().unwrap().starts_with("trace.db")), "{left:?}");
}

#[test]
fn root_records_name_what_they_waited_on_after_the_disk_was_full() {
    let disk = SmallDisk::mount("size=2m");
    let (path, mut writer) = disk.half_full();
    let cast = Cast::new(&mut writer);
    let target = Some(writer.target(&cast.target("0x7f12a0")).unwrap());
    let stretches: Vec<Stretch> = (0..40_000).map(|at| Stretch { target, ..cast.stretch(at * 5_000) }).collect();
    assert_does_not_fit(&writer.stretches(&stretches).and_then(|()| writer.commit(START_NS)));
    assert_eq!(writer.take_not_written(), 0);
    disk.make_room();
    assert_eq!(writer.target(&cast.target("0x7f12a0")).ok(), target);
    writer.stretches(&stretches[..1000]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT COUNT(*), MIN(target), MIN(comm) FROM sched_events"), ["1000 0x7f12a0 python"]);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn root_stacks_have_their_frames_after_the_disk_was_full() {
    let disk = SmallDisk::mount("size=2m");
    let (path, mut writer) = disk.half_full();
    let cast = Cast::new(&mut writer);
    let stack = writer.reserve_stack().unwrap();
    let frames = vec![Frame { function: "forward".into(), ..Frame::default() }; 3];
    writer.stack(stack, &Stack { frames, ..Stack::default() }).unwrap();
    let stretches: Vec<Stretch> =
        (0..40_000).map(|at| Stretch { stack: Some(stack), ..cast.stretch(at * 5_000) }).collect();
    assert_does_not_fit(&writer.stretches(&stretches).and_then(|()| writer.commit(START_NS)));
    disk.make_room();
    writer.stretches(&stretches[..1000]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(lines(&path, "SELECT function, waits, max_stack_id FROM wait_sites"), ["forward 1000 1"]);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM stack_lines"), 3);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn root_a_disk_too_small_for_a_trace_is_told_and_left_empty() {
    let disk = SmallDisk::mount("size=16k");
    let path = disk.path().join("trace.db");
    let error = Writer::open(&path, &session(), &Options::default()).err().expect("too small");
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[test]
fn root_a_read_only_disk_is_told() {
    let disk = SmallDisk::mount("size=1m,ro");
    let error = Writer::open(disk.path().join("trace.db"), &session(), &Options::default()).err().expect("read-only");
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
}
