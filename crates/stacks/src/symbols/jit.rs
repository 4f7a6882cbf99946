//! Code that a process made while it ran, as far as it says in `/tmp/perf-PID.map` what it made.
//!
//! Only what was added since the last look is read. The file is the process's own word: what overlaps is taken from the
//! later line, and what does not fit a bound is left out.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::names;
use super::open::{self, Identity};

/// How much of a map is read, in bytes. Java's are the longest, with some megabytes.
const MAP_LIMIT: u64 = 16 << 20;

/// How many functions are kept of a map.
const MOST_FUNCTIONS: usize = 200_000;

/// How much is read at once.
const PART: usize = 1 << 20;

/// The functions of one process's map.
#[derive(Default)]
pub struct PerfMap {
    identity: Option<Identity>,
    /// How many bytes of whole lines were read.
    position: u64,
    /// By start: where each ends, and its name.
    functions: BTreeMap<u64, (u64, String)>,
}

impl PerfMap {
    /// Reads what a process has added to its map. A process that is gone adds nothing.
    pub fn refresh(&mut self, pid: u32) {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let Some(file) = open::below(&root, Path::new(&format!("/tmp/perf-{}.map", own_pid(pid)))) else { return };
        self.read(&file);
    }

    pub fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    fn read(&mut self, file: &File) {
        let Ok(now) = Identity::of(file) else { return };
        if self.identity == Some(now) {
            return;
        }
        let is_longer = self.identity.is_some_and(|was| was.is_same_file(&now) && was.size <= now.size);
        if !is_longer {
            *self = Self::default();
        }
        self.identity = Some(now);
        while self.position < now.size.min(MAP_LIMIT) && self.read_part(file) {}
    }

    /// Reads whole lines, and says whether there were any.
    fn read_part(&mut self, file: &File) -> bool {
        let mut part = vec![0; PART];
        let Ok(length) = file.read_at(&mut part, self.position) else { return false };
        let Some(end) = part[..length].iter().rposition(|byte| *byte == b'\n') else { return false };
        for line in part[..end].split(|byte| *byte == b'\n') {
            self.add(&String::from_utf8_lossy(line));
        }
        self.position += end as u64 + 1;
        true
    }

    /// Adds what a line says: `START SIZE name`, both numbers in hexadecimal.
    fn add(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        let (Some(start), Some(size)) = (number(), number()) else { return };
        let (Some(name), Some(end)) = (words.next(), start.checked_add(size)) else { return };
        self.remove_overlapping(start, end);
        if size > 0 && self.functions.len() < MOST_FUNCTIONS {
            self.functions.insert(start, (end, names::cut(name)));
        }
    }

    /// Code is thrown away without a word; what is made in its place says so.
    fn remove_overlapping(&mut self, start: u64, end: u64) {
        while let Some((&old, &(old_end, _))) = self.functions.range(..end).next_back() {
            if old_end <= start {
                return;
            }
            self.functions.remove(&old);
        }
    }
}

/// The process's number as it sees it itself, in its container.
fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(pid)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn functions_are_found_by_any_address_in_them() {
        let mut map = PerfMap::default();
        for line in
            ["1000 20 first", "0x1020 10 second with spaces", "x 1 wrong", "1030 0 empty", "", "ffffffffffffffff 2 far"]
        {
            map.add(line);
        }
        let found = [0xfff, 0x1000, 0x101f, 0x1020, 0x102f, 0x1030, u64::MAX].map(|address| map.find(address));
        let second = Some("second with spaces");
        assert_eq!(found, [None, Some("first"), Some("first"), second, second, None, None]);
    }

    #[test]
    fn code_made_in_place_of_other_code_takes_its_name() {
        let mut map = PerfMap::default();
        for line in ["1000 20 old", "1020 20 other", "1010 18 new"] {
            map.add(line);
        }
        let found = [0x1000, 0x1010, 0x1027, 0x1030].map(|address| map.find(address));
        assert_eq!(found, [None, Some("new"), Some("new"), None]);
    }

    #[test]
    fn what_is_added_later_is_read_and_a_line_under_way_is_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        let mut map = PerfMap::default();
        file.write_all(b"1000 20 first\n1020 2").unwrap();
        map.read(&file);
        assert_eq!((map.find(0x1000), map.find(0x1020)), (Some("first"), None));
        file.write_all(b"0 second\n").unwrap();
        map.read(&file);
        assert_eq!((map.find(0x1000), map.find(0x103f)), (Some("first"), Some("second")));
    }

    #[test]
    fn names_and_functions_without_end_are_bounded() {
        let mut map = PerfMap::default();
        map.add(&format!("1000 20 {}", "x".repeat(5000)));
        assert_eq!(map.find(0x1000).unwrap().len(), names::NAME_LIMIT);
        for index in 0..MOST_FUNCTIONS as u64 + 10 {
            map.add(&format!("{:x} 1 f", 0x10_0000 + index));
        }
        assert_eq!(map.functions.len(), MOST_FUNCTIONS);
    }
}
