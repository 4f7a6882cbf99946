//! What is known of a process whose stacks are walked.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuwhy_capture::{CodeMapping, RawCode, RawPythonFrame};
use gpuwhy_stacks::memory::{CopiedMemory, Memory, ProcessMemory};
use gpuwhy_stacks::python::{CodeObject, Interpreter, Refusal};
use gpuwhy_stacks::symbols::Symbolizer;
use hashbrown::HashMap;

use super::files::{CodeFile, FileNumber, Files};
use super::interpreter::{Candidate, Refused, find_interpreter, may_hold_python};
use super::kernels::Trust;
use crate::procfs::{Code, Mapping, Procfs};

pub struct Walked {
    pub identity: u32,
    regions: Vec<Region>,
    pub python: Option<Interpreter>,
    looks_for_python: bool,
    /// Whether it has a Python whose frames cannot be walked.
    is_refused: bool,
    /// Whether it maps something that is not known yet.
    pub is_stale: bool,
    read_at: Instant,
    /// Whether it was not there any more when it should have been read.
    is_gone: bool,
    codes: HashMap<(u64, u32), Option<Arc<CodeObject>>>,
    pub kernels: Trust,
    /// What the kernel side was last told.
    told: Option<(Vec<CodeMapping>, bool)>,
}

/// Code in memory.
struct Region {
    addresses: Range<u64>,
    /// `None` for code without a file.
    file: Option<(FileNumber, u64)>,
}

/// Where an address lies.
pub enum Place {
    /// The file, and the address in it.
    File(FileNumber, u64),
    Jit,
    Unknown,
}

const READ_AGAIN: Duration = Duration::from_millis(200);
/// What was unmapped, and mapped again elsewhere, shows nowhere else.
const READ_ANYWAY: Duration = Duration::from_secs(5);
/// Functions of a program; there is no end to those that are made at run time.
const MOST_CODES: usize = 1 << 16;
const VDSO_BYTES: u64 = 1 << 16;

impl Walked {
    pub fn new(identity: u32) -> Self {
        Self {
            identity,
            regions: Vec::new(),
            python: None,
            looks_for_python: true,
            is_refused: false,
            is_stale: false,
            read_at: Instant::now(),
            is_gone: false,
            codes: HashMap::new(),
            kernels: Trust::default(),
            told: None,
        }
    }

    pub fn is_due(&self) -> bool {
        let unread = self.read_at.elapsed();
        (self.is_stale || self.looks_for_python) && unread > READ_AGAIN || unread > READ_ANYWAY
    }

    /// It is not there any more: has that been so for a while? Its last stacks may still be on their way. Nobody tells of
    /// the end of a process that makes no traced calls.
    pub fn is_long_gone(&mut self) -> bool {
        self.is_stale = false;
        self.looks_for_python = false;
        self.read_at = Instant::now();
        std::mem::replace(&mut self.is_gone, true)
    }

    /// Reads what the process maps. One that is gone keeps what was known of it.
    pub fn read_code(&mut self, pid: u32, procfs: &Procfs, files: &mut Files) {
        self.is_stale = false;
        // Another process may have got its number.
        self.looks_for_python |= std::mem::take(&mut self.is_gone);
        self.read_at = Instant::now();
        let Ok(code) = procfs.executable(pid) else { return };
        let region = |code: Code| match code {
            Code::File(mapping) => {
                let file = file_of(pid, &mapping, procfs, files);
                Region { addresses: mapping.start..mapping.end, file }
            }
            Code::Vdso(addresses) => {
                let file = files.vdso(|| read_vdso(pid, &addresses));
                let bias = file.and_then(|file| Some((file, files.get(file).bias(addresses.start, 0)?)));
                Region { addresses, file: bias }
            }
            Code::Jit(addresses) => Region { addresses, file: None },
        };
        let regions: Vec<Region> = code.into_iter().map(region).collect();
        // Python may come with a library that is loaded late.
        self.looks_for_python |= self.python.is_none() && !self.is_refused && regions.len() > self.regions.len();
        self.regions = regions;
    }

    /// Finds out whether the process runs Python, until that is known. Returns what there is to complain about.
    pub fn find_python(&mut self, pid: u32, files: &mut Files) -> Option<String> {
        if !self.looks_for_python {
            return None;
        }
        self.looks_for_python = false;
        let (numbers, candidates): (Vec<FileNumber>, Vec<Candidate>) =
            self.python_candidates(pid, files).into_iter().unzip();
        match find_interpreter(pid, candidates) {
            Ok(None) => files.without_python(&numbers),
            Ok(found) => self.python = found,
            Err(Refused { why: Refusal::NotReady(_), .. }) => self.looks_for_python = true,
            Err(Refused { path, why }) => {
                self.is_refused = true;
                let path = path.display();
                return Some(format!("Python's frames in process {pid} are not walked ({path}): {why}"));
            }
        }
        None
    }

    fn python_candidates(&self, pid: u32, files: &Files) -> Vec<(FileNumber, Candidate)> {
        let may_hold_python = may_hold_python(pid);
        let mut candidates: Vec<(FileNumber, Candidate)> = Vec::new();
        for Region { addresses, file } in &self.regions {
            let Some((file, bias)) = *file else { continue };
            let CodeFile { path, has_no_python, .. } = files.get(file);
            if !has_no_python && may_hold_python(path) && !candidates.iter().any(|(_, known)| known.path == *path) {
                let openable = format!("/proc/{pid}/map_files/{:x}-{:x}", addresses.start, addresses.end).into();
                candidates.push((file, Candidate { path: path.clone(), openable, bias }));
            }
        }
        candidates
    }

    /// Whether every file has its table.
    pub fn is_ready(&self, files: &Files) -> bool {
        self.regions.iter().all(|region| region.file.is_none_or(|(file, _)| files.get(file).is_ready))
    }

    pub fn maps(&self, file: FileNumber) -> bool {
        self.regions.iter().any(|region| region.file.is_some_and(|(mapped, _)| mapped == file))
    }

    /// Whether the kernel side does not know these mappings yet, or whether there is Python.
    pub fn has_news(&mut self, mappings: &[CodeMapping]) -> bool {
        let now = (mappings.to_vec(), self.python.is_some());
        let is_news = self.told.as_ref() != Some(&now);
        self.told = Some(now);
        is_news
    }

    /// For the kernel side.
    pub fn mappings(&self, files: &Files) -> Vec<CodeMapping> {
        let mapping = |region: &Region| {
            let file = region.file.map(|(file, _)| files.get(file));
            CodeMapping {
                addresses: region.addresses.clone(),
                bias: region.file.map_or(0, |(_, bias)| bias),
                table: file.and_then(|file| file.table),
                has_frame_pointers: file.is_some_and(|file| file.has_frame_pointers),
            }
        };
        self.regions.iter().map(mapping).collect()
    }

    /// The files that these addresses lie in.
    pub fn want_files(&self, addresses: &[u64], files: &mut Files, symbols: &mut Symbolizer) {
        for &address in addresses {
            if let Place::File(file, _) = self.place(address.wrapping_sub(1)) {
                files.want(file, symbols);
            }
        }
    }

    pub fn place(&self, address: u64) -> Place {
        let after = self.regions.partition_point(|region| region.addresses.start <= address);
        let region = after.checked_sub(1).map(|index| &self.regions[index]);
        match region.filter(|region| region.addresses.contains(&address)) {
            Some(Region { file: Some((file, bias)), .. }) => Place::File(*file, address.wrapping_sub(*bias)),
            Some(_) => Place::Jit,
            None => Place::Unknown,
        }
    }

    /// A code object that the kernel side saw for the first time.
    pub fn learn_code(&mut self, raw: &RawCode) {
        let Some(interpreter) = self.python.as_ref().filter(|_| raw.identity == self.identity) else { return };
        let code = CodeObject::read(&CopiedMemory { pieces: &raw.memory }, interpreter, raw.code);
        if let Ok(code) = code
            && code.fingerprint == raw.fingerprint
        {
            self.remember((raw.code, raw.fingerprint), Some(Arc::new(code)));
        }
    }

    fn remember(&mut self, key: (u64, u32), code: Option<Arc<CodeObject>>) {
        if self.codes.len() >= MOST_CODES {
            self.codes.clear();
        }
        self.codes.insert(key, code);
    }

    /// The code object of a frame, if the one that the kernel side saw is still there.
    pub fn code(&mut self, pid: u32, frame: &RawPythonFrame) -> Option<Arc<CodeObject>> {
        let interpreter = self.python.as_ref()?;
        let key = (frame.code, frame.fingerprint);
        if let Some(known) = self.codes.get(&key) {
            return known.clone();
        }
        let read = CodeObject::read(&ProcessMemory { pid }, interpreter, frame.code);
        let code = read.ok().filter(|code| code.fingerprint == frame.fingerprint).map(Arc::new);
        self.remember(key, code.clone());
        code
    }
}

fn file_of(pid: u32, mapping: &Mapping, procfs: &Procfs, files: &mut Files) -> Option<(FileNumber, u64)> {
    let openable = procfs.openable(pid, mapping);
    let file = files.open(&openable, &mapping.path).inspect_err(|error| tracing::debug!("{error:#}")).ok()?;
    Some((file, files.get(file).bias(mapping.start, mapping.offset)?))
}

fn read_vdso(pid: u32, addresses: &Range<u64>) -> Option<Vec<u8>> {
    let bytes = addresses.end.checked_sub(addresses.start).filter(|&bytes| bytes <= VDSO_BYTES)?;
    let mut image = vec![0; bytes as usize];
    ProcessMemory { pid }.read(addresses.start, &mut image).then_some(image)
}
