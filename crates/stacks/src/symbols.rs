//! Addresses to functions and lines: of files by their symbols and debug information, of the kernel, and of code that a
//! process made while it ran.
//!
//! Files are hostile, and nothing about a file that others can write to may stop or kill us:
//! - A file is read piece by piece and never mapped, since a mapping of a file that gets shorter is deadly (SIGBUS). The
//!   symbols become a table of our own (`symbols/table.rs`). blazesym tells lines and inlined functions, and maps what it
//!   reads, so it gets a copy of the debug information in a sealed memory file (`symbols/image.rs`).
//! - Debug information is looked over for what would overflow the stack or blow up in memory (`symbols/check.rs`), and
//!   what panics all the same is caught. A file that fails keeps its module and addresses and loses its names; how many
//!   did is counted.
//! - Paths that a process sees are looked up below its root (`symbols/open.rs`).
//! - A file that has changed since it was opened is not used: its addresses would get wrong names.
//!
//! Memory is bounded by [`Limits`]. What blazesym collects for a file only goes as a whole, so that each
//! file has one of its own, and the one that was not used for longest goes first.

mod check;
mod debug;
mod debug_file;
mod elf;
mod files;
mod image;
mod jit;
mod kernel;
mod names;
mod open;
mod recent;
mod table;

use std::path::Path;

use anyhow::{Context, Result};
use gpuwhy_model::{Frame, FrameKind};
use hashbrown::HashMap;

use files::KeptFile;
use jit::PerfMap;
use kernel::KernelSymbols;
pub use names::{kernel_name, readable};
pub use open::{Identity, regular as open_regular};
use recent::Recent;

/// What is not used between so many trims gives its memory back.
const IDLE_TRIMS: u64 = 3;

/// How many processes' own maps of code are kept.
const MOST_PERF_MAPS: usize = 16;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many files are open, each with a debug file where there is one.
    pub files: usize,
    /// How many addresses are remembered with their frames.
    pub results: usize,
    /// How many bytes of files are in memory. A file that needs more loses its lines, or its names.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 512, results: 32 * 1024, bytes: 256 << 20 }
    }
}

/// A file that a [`Symbolizer`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u64);

/// What could not be told, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Files whose symbols cannot be read: none there, damaged, changed or too large.
    pub files: u64,
    /// Files that have debug information which cannot be used: damaged, changed or too large.
    pub debug_information: u64,
    /// Addresses at which the reading of a file failed.
    pub addresses: u64,
    /// Addresses in files that are no longer kept.
    pub forgotten: u64,
    /// How often the kernel's symbols could not be read.
    pub kernel: u64,
}

/// Tells what addresses mean. It belongs to one thread.
pub struct Symbolizer {
    limits: Limits,
    files: HashMap<FileId, KeptFile>,
    by_identity: HashMap<Identity, FileId>,
    next_id: u64,
    results: Recent<(Code, u64), Vec<Frame>>,
    kernel: KernelSymbols,
    perf_maps: HashMap<u32, (PerfMap, u64)>,
    calls: u64,
    trims: u64,
    failures: Failures,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Code {
    File(FileId),
    Kernel,
}

impl Symbolizer {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            files: HashMap::new(),
            by_identity: HashMap::new(),
            next_id: 0,
            results: Recent::new(limits.results),
            kernel: KernelSymbols::default(),
            perf_maps: HashMap::new(),
            calls: 0,
            trims: 0,
            failures: Failures::default(),
        }
    }

    /// Keeps a file open, so that it can be read after the process has exited. `openable` is a path that opens it now,
    /// such as `/proc/PID/map_files/...`, and `seen_as` is the path that the process sees. The same file with the same
    /// contents has the same id. Debug files are looked for in the root of the process that `openable` belongs to.
    pub fn file(&mut self, openable: &Path, seen_as: &Path) -> Result<FileId> {
        self.file_in(openable, seen_as, &open::root_of(openable))
    }

    /// Like [`Self::file`], with debug files in a root of choice.
    pub fn file_in(&mut self, openable: &Path, seen_as: &Path, root: &Path) -> Result<FileId> {
        let file = open::regular(openable).with_context(|| format!("keep {} for its symbols", seen_as.display()))?;
        let identity = Identity::of(&file)?;
        let id = match self.by_identity.get(&identity) {
            Some(id) => *id,
            None => self.keep(identity, KeptFile::new(file, identity, seen_as, root)),
        };
        self.touch(id);
        Ok(id)
    }

    /// Whether a file is still kept: it goes when too many others were used since.
    pub fn is_kept(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// What the linker wrote into the file to tell it from all others.
    pub fn build_id(&self, file: FileId) -> Option<Vec<u8>> {
        self.files.get(&file)?.build_id()
    }

    /// The frames at an address of a file, as tools print it: inlined functions first, the real function last. A return
    /// address stands for the call before it. There is always a frame; what is not known of it is empty.
    pub fn native(&mut self, file: FileId, address: u64, is_return: bool) -> Vec<Frame> {
        let lookup = if is_return { address.saturating_sub(1) } else { address };
        self.touch(file);
        let key = (Code::File(file), lookup);
        let mut frames = match self.results.get(key) {
            Some(frames) => frames.clone(),
            None => {
                let frames = self.look_up(file, lookup);
                self.results.insert(key, frames.clone());
                frames
            }
        };
        for frame in &mut frames {
            frame.address = address;
        }
        frames
    }

    /// The kernel's function at an address; the module is the kernel module, if it is one's.
    pub fn kernel(&mut self, address: u64) -> Frame {
        let key = (Code::Kernel, address);
        if let Some(frame) = self.results.get(key).and_then(|frames| frames.first()) {
            return frame.clone();
        }
        self.refresh_kernel();
        let mut frame = Frame { kind: FrameKind::Kernel, address, ..Frame::default() };
        if let Some(found) = self.kernel.find(address) {
            (frame.function, frame.module) = (found.name, found.module);
        }
        self.results.insert(key, vec![frame.clone()]);
        frame
    }

    /// The function at an address that belongs to no file, if the process has written down what it made there.
    pub fn jit(&mut self, pid: u32, address: u64) -> Frame {
        if !self.perf_maps.contains_key(&pid) && self.perf_maps.len() >= MOST_PERF_MAPS {
            let oldest = self.perf_maps.iter().min_by_key(|(_, (_, used))| *used).map(|(pid, _)| *pid);
            oldest.map(|oldest| self.perf_maps.remove(&oldest));
        }
        let (map, used) = self.perf_maps.entry(pid).or_default();
        *used = self.trims;
        map.refresh(pid);
        let function = map.find(address).unwrap_or_default().to_owned();
        Frame { kind: FrameKind::Jit, function, address, ..Frame::default() }
    }

    /// Gives back the memory of what was not used lately. To be called every few seconds.
    pub fn trim(&mut self) {
        self.trims += 1;
        let oldest = self.trims.saturating_sub(IDLE_TRIMS);
        self.perf_maps.retain(|_, (_, used)| *used >= oldest);
        self.files.values_mut().filter(|file| file.last_trim < oldest).for_each(KeptFile::close);
    }

    pub fn failures(&self) -> Failures {
        self.failures
    }

    /// How many bytes of files are in memory, with what was collected for them.
    pub fn memory(&self) -> u64 {
        self.files.values().map(KeptFile::memory).sum()
    }

    fn look_up(&mut self, id: FileId, address: u64) -> Vec<Frame> {
        let Some(file) = self.files.get_mut(&id) else {
            self.failures.forgotten += 1;
            return vec![Frame::default()];
        };
        let frames = file.find(address, self.limits.bytes, &mut self.failures);
        self.free_memory(id);
        frames
    }

    fn keep(&mut self, identity: Identity, file: KeptFile) -> FileId {
        while self.files.len() >= self.limits.files.max(1) {
            let Some(oldest) = self.oldest(|_, _| true) else { break };
            self.forget(oldest);
        }
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.files.insert(id, file);
        self.by_identity.insert(identity, id);
        id
    }

    fn forget(&mut self, id: FileId) {
        if let Some(file) = self.files.remove(&id) {
            self.by_identity.remove(&file.identity);
        }
    }

    fn touch(&mut self, id: FileId) {
        self.calls += 1;
        if let Some(file) = self.files.get_mut(&id) {
            (file.last_call, file.last_trim) = (self.calls, self.trims);
        }
    }

    /// Takes the memory of those that were not used for longest, but never of the one in use.
    fn free_memory(&mut self, in_use: FileId) {
        while self.memory() > self.limits.bytes {
            let oldest = self.oldest(|id, file| id != in_use && file.memory() > 0);
            let Some(file) = oldest.and_then(|oldest| self.files.get_mut(&oldest)) else { return };
            file.close();
        }
    }

    fn oldest(&self, is_meant: impl Fn(FileId, &KeptFile) -> bool) -> Option<FileId> {
        let meant = self.files.iter().filter(|(id, file)| is_meant(**id, file));
        meant.min_by_key(|(_, file)| file.last_call).map(|(id, _)| *id)
    }

    fn refresh_kernel(&mut self) {
        match self.kernel.refresh() {
            // What was told by the former symbols may be another module's by now.
            Ok(true) => self.results.clear(),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!("functions of the kernel have no names: {error:#}");
                self.failures.kernel += 1;
            }
        }
    }
}
