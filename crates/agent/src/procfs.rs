//! What `/proc` says about processes. The root is an argument, so that tests can hand in a tree of their own.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gpuwhy_model::Process;

use crate::cgroups;
use crate::labels::Environment;

#[derive(Clone, Debug)]
pub struct Procfs {
    root: PathBuf,
}

/// A file mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub inode: u64,
    /// As the process sees it; `(deleted)` is taken off.
    pub path: PathBuf,
    pub deleted: bool,
    /// The name of its entry under `map_files`.
    range: String,
}

impl Default for Procfs {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl Procfs {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn of(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    pub fn exists(&self, pid: u32) -> bool {
        self.of(pid, "stat").exists()
    }

    /// Whether it still has what it has mapped. One that ends is there for a while without.
    pub fn has_memory(&self, pid: u32) -> bool {
        self.status(pid, "VmSize:").is_some()
    }

    pub fn thread_exists(&self, pid: u32, tid: u32) -> bool {
        self.of(pid, "task").join(tid.to_string()).exists()
    }

    pub fn pids(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Everything the process can execute, in the order of addresses.
    pub fn executable(&self, pid: u32) -> io::Result<Vec<Code>> {
        let maps = std::fs::read(self.of(pid, "maps"))?;
        Ok(String::from_utf8_lossy(&maps).lines().filter_map(parse_code).collect())
    }

    /// Files the process maps as code.
    pub fn code(&self, pid: u32) -> io::Result<Vec<Mapping>> {
        let file = |code| match code {
            Code::File(mapping) => Some(mapping),
            Code::Vdso(_) | Code::Jit(_) => None,
        };
        Ok(self.executable(pid)?.into_iter().filter_map(file).collect())
    }

    /// A path that opens the mapped file from here, whatever mount namespace the process lives in, deleted or not.
    pub fn openable(&self, pid: u32, mapping: &Mapping) -> PathBuf {
        let by_mapping = self.of(pid, "map_files").join(&mapping.range);
        if by_mapping.metadata().is_ok() {
            return by_mapping;
        }
        let inside = mapping.path.strip_prefix("/").unwrap_or(&mapping.path);
        self.of(pid, "root").join(inside)
    }

    pub fn parent(&self, pid: u32) -> Option<u32> {
        self.status(pid, "PPid:")?.parse().ok()
    }

    pub fn uid(&self, pid: u32) -> Option<u32> {
        self.status(pid, "Uid:")?.split_ascii_whitespace().next()?.parse().ok()
    }

    fn status(&self, pid: u32, key: &str) -> Option<String> {
        let status = std::fs::read(self.of(pid, "status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        Some(status.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned())
    }

    pub fn comm(&self, pid: u32) -> Option<String> {
        let comm = std::fs::read(self.of(pid, "comm")).ok()?;
        Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned())
    }

    /// The variables the process was started with.
    pub fn environment(&self, pid: u32) -> Environment {
        Environment::parse(&std::fs::read(self.of(pid, "environ")).unwrap_or_default())
    }

    /// Everything a trace says about a process; what cannot be read any more stays empty.
    pub fn describe(&self, pid: u32, started_ns: u64) -> Process {
        let cmdline = std::fs::read(self.of(pid, "cmdline")).unwrap_or_default();
        let words: Vec<_> = cmdline.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
        let exe = std::fs::read_link(self.of(pid, "exe")).unwrap_or_default();
        let cgroup_file = std::fs::read(self.of(pid, "cgroup")).unwrap_or_default();
        let cgroup_file = String::from_utf8_lossy(&cgroup_file);
        let cgroup = longest_path(&cgroup_file).unwrap_or_default();
        let limits = cgroups::limits(&cgroup_file);
        Process {
            pid,
            parent_pid: self.parent(pid).unwrap_or(0),
            started_ns,
            uid: self.uid(pid).unwrap_or(0),
            comm: self.comm(pid).unwrap_or_default(),
            exe: exe.to_string_lossy().into_owned(),
            cmdline: words.join(" ").trim_end().to_owned(),
            cgroup_id: self.cgroup_id(pid).unwrap_or(0),
            container_id: container_id(&cgroup),
            cgroup,
            cpu_quota: limits.cpus,
            memory_limit: limits.memory,
        }
    }

    /// The number the kernel gives the process's version 2 cgroup: the inode of its directory.
    fn cgroup_id(&self, pid: u32) -> Option<u64> {
        let text = std::fs::read_to_string(self.of(pid, "cgroup")).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists())?;
        root.join(path).metadata().ok().map(|directory| directory.ino())
    }

    /// Whether the process has a GPU's device file open.
    pub fn has_gpu_device(&self, pid: u32) -> bool {
        self.open_files(pid).any(|file| file.to_string_lossy().starts_with("/dev/nvidia"))
    }

    /// The numbers of its sockets.
    pub fn sockets(&self, pid: u32) -> Vec<u64> {
        let number = |file: PathBuf| file.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
        self.open_files(pid).filter_map(number).collect()
    }

    fn open_files(&self, pid: u32) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(self.of(pid, "fd")).into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok())
    }
}

/// The cgroup that says most: version 2's, or the longest path of version 1's hierarchies.
fn longest_path(cgroup_file: &str) -> Option<String> {
    let paths = cgroup_file.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.max_by_key(|path| path.len()).map(str::to_owned)
}

/// Memory that a process can execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    File(Mapping),
    /// The kernel's own library.
    Vdso(Range<u64>),
    /// Memory without a file: code that was made at run time.
    Jit(Range<u64>),
}

/// What one line of `maps` says about code.
fn parse_code(line: &str) -> Option<Code> {
    let mut rest = line;
    let mut field = || {
        let trimmed = rest.trim_start_matches(' ');
        let end = trimmed.find(' ').unwrap_or(trimmed.len());
        let (word, tail) = trimmed.split_at(end);
        rest = tail;
        word
    };
    let range = field();
    let permissions = field();
    let (offset, _device) = (field(), field());
    let inode: u64 = field().parse().ok()?;
    let name = rest.trim_start_matches(' ');
    if !permissions.contains('x') || KERNELS_OWN.contains(&name) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    if inode == 0 || !name.starts_with('/') {
        return Some(if name == "[vdso]" { Code::Vdso(start..end) } else { Code::Jit(start..end) });
    }
    let kept = name.strip_suffix(" (deleted)");
    Some(Code::File(Mapping {
        start,
        end,
        offset: hexadecimal(offset)?,
        inode,
        path: PathBuf::from(unescape(kept.unwrap_or(name))),
        deleted: kept.is_some(),
        range: range.to_owned(),
    }))
}

/// Pages that the kernel maps: nothing of the program runs there.
const KERNELS_OWN: &[&str] = &["[vsyscall]", "[uprobes]", "[uprobes-trampoline]"];

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// The kernel writes a newline in a path as `\012`.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// The 64 hexadecimal digits every container runtime puts into the cgroup's name.
fn container_id(cgroup: &str) -> Option<String> {
    cgroup.rsplit(|c: char| !c.is_ascii_hexdigit()).find(|part| part.len() == 64).map(|id| id.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_file(line: &str) -> Mapping {
        let Some(Code::File(mapping)) = parse_code(line) else { panic!("not a file's code: {line}") };
        mapping
    }

    #[test]
    fn code_of_files_is_found_and_what_cannot_run_is_not() {
        let mapping = parse_file("7f00-7f80 r-xp 00001000 08:01 1234   /usr/lib/lib cuda.so.1");
        assert_eq!((mapping.start, mapping.end, mapping.inode), (0x7f00, 0x7f80, 1234));
        assert_eq!(mapping.path, Path::new("/usr/lib/lib cuda.so.1"));
        assert_eq!(parse_code("7f00-7f80 r--p 00001000 08:01 1234 /usr/lib/libcuda.so.1"), None);
        assert_eq!(parse_code(""), None);
    }

    #[test]
    fn code_without_a_file_is_the_kernels_or_made_at_run_time() {
        assert_eq!(parse_code("7f00-7f80 r-xp 0 00:00 0 [vdso]"), Some(Code::Vdso(0x7f00..0x7f80)));
        assert_eq!(parse_code("7f00-7f80 rwxp 0 00:00 0"), Some(Code::Jit(0x7f00..0x7f80)));
        assert_eq!(parse_code("7f00-7f80 r-xp 0 00:00 0 [uprobes]"), None);
        assert_eq!(parse_code("7f00-7f80 rw-p 0 00:00 0 [stack]"), None);
    }

    #[test]
    fn only_code_that_has_a_file_is_mapped_from_one() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("7")).unwrap();
        let file = "7f00-7f80 r-xp 0 08:01 9 /usr/lib/libcuda.so.1";
        let maps = format!("{file}\n8f00-8f80 rwxp 0 00:00 0\n9f00-9f80 r-xp 0 00:00 0 [vdso]\n");
        std::fs::write(root.path().join("7/maps"), maps).unwrap();
        let procfs = Procfs::new(root.path());
        assert_eq!(procfs.executable(7).unwrap().len(), 3);
        assert_eq!(procfs.code(7).unwrap(), [parse_file(file)]);
    }

    #[test]
    fn a_deleted_file_keeps_its_name() {
        let mapping = parse_file("7f00-7f80 r-xp 0 08:01 9 /tmp/libcuda.so (deleted)");
        assert!(mapping.deleted);
        assert_eq!(mapping.path, Path::new("/tmp/libcuda.so"));
    }

    #[test]
    fn container_ids_are_read_from_the_names_runtimes_give() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(container_id(&format!("/docker/{id}")), Some(id.clone()));
        assert_eq!(container_id(&format!("/kubepods.slice/cri-containerd-{id}.scope")), Some(id));
        assert_eq!(container_id("/user.slice/user-1000.slice"), None);
    }

    #[test]
    fn a_tree_that_is_not_there_reads_as_nothing() {
        let procfs = Procfs::new("/nonexistent");
        assert!(procfs.pids().is_empty());
        assert!(procfs.code(1).is_err());
        assert_eq!(procfs.describe(1, 5), Process { pid: 1, started_ns: 5, ..Default::default() });
    }

    #[test]
    fn names_with_invalid_text_are_read_anyway() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("7");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("comm"), b"py\xffthon\n").unwrap();
        std::fs::write(dir.join("cmdline"), b"python\0-c\0print('\x1b[31m')\0").unwrap();
        std::fs::write(dir.join("status"), b"Name:\tx\nPPid:\t3\nUid:\t1000\t1000\t1000\t1000\n").unwrap();
        std::fs::write(dir.join("cgroup"), b"0::/x\n").unwrap();
        std::fs::write(dir.join("environ"), b"A=1\0CUDA_VISIBLE_DEVICES=3,1\0").unwrap();
        let procfs = Procfs::new(root.path());
        let process = procfs.describe(7, 0);
        assert_eq!(process.comm, "py\u{fffd}thon");
        assert_eq!(process.cmdline, "python -c print('\x1b[31m')");
        assert_eq!((process.parent_pid, process.uid), (3, 1000));
        assert_eq!(procfs.environment(7).get("CUDA_VISIBLE_DEVICES"), Some("3,1"));
        assert_eq!(procfs.pids(), [7]);
    }
}
