//! The files that processes execute: where their code lies, and their unwind tables, compiled once each by a thread of its
//! own, the smallest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use gpuwhy_capture::{StackTables, TableId, UnwindRow};
use gpuwhy_stacks::symbols::{self, Identity};
use gpuwhy_stacks::table::{Segment, Table, load_bias, segments};
use hashbrown::HashMap;

use super::background::Background;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileNumber(usize);

/// Machine learning brings libraries of hundreds of megabytes along of which few are ever on a stack.
const LARGE: u64 = 32 << 20;
/// Tables that may wait to be compiled, each with an open file, and those that wait to be given to the kernel side. The
/// compiler waits for its customer, never the other way round.
const MOST_ORDERS: usize = 1024;
const MOST_BUILT: usize = 4;

pub struct Files {
    all: Vec<CodeFile>,
    by_identity: HashMap<Identity, FileNumber>,
    vdso: Option<FileNumber>,
    to_build: Sender<Order>,
}

pub struct CodeFile {
    /// As a process sees it.
    pub path: PathBuf,
    /// What opens it, as long as the process that mapped it last is there.
    openable: PathBuf,
    /// Known from when its code is on a stack.
    pub symbols: Option<symbols::FileId>,
    /// Nothing opens it any more, or it is no file: not worth another try until somebody opens it again.
    is_out_of_reach: bool,
    segments: Vec<Segment>,
    pub table: Option<TableId>,
    pub has_frame_pointers: bool,
    /// Whether there is a table, it is known that there is none, or nobody has asked for it.
    pub is_ready: bool,
    /// Whether it is known that there is no Python in it.
    pub has_no_python: bool,
    /// Of a file whose table waits until its code is on a stack: a large one, or one that came when too many waited.
    unasked: Option<Order>,
}

/// A table to compile.
struct Order {
    file: FileNumber,
    from: Source,
    bytes: u64,
}

enum Source {
    File(File),
    Bytes(Vec<u8>),
}

pub struct Built {
    pub file: FileNumber,
    table: Result<Table>,
}

impl Files {
    pub fn start() -> (Self, Receiver<Built>) {
        let (to_build, orders) = bounded(MOST_ORDERS);
        let (built, ready) = bounded(MOST_BUILT);
        thread::spawn(move || build(&orders, &built));
        (Self { all: Vec::new(), by_identity: HashMap::new(), vdso: None, to_build }, ready)
    }

    pub fn get(&self, file: FileNumber) -> &CodeFile {
        &self.all[file.0]
    }

    /// There is no Python in these files.
    pub fn without_python(&mut self, files: &[FileNumber]) {
        for file in files {
            self.all[file.0].has_no_python = true;
        }
    }

    /// The file behind a path that opens it now; known by what it is, whoever maps it under whatever name.
    pub fn open(&mut self, openable: &Path, seen_as: &Path) -> Result<FileNumber> {
        let file = symbols::open_regular(openable)?;
        let identity = Identity::of(&file)?;
        if let Some(&known) = self.by_identity.get(&identity) {
            let file = &mut self.all[known.0];
            openable.clone_into(&mut file.openable);
            file.is_out_of_reach = false;
            return Ok(known);
        }
        let segments = segments(&file).with_context(|| format!("read {}", seen_as.display()))?;
        let number = self.add(seen_as, openable, segments);
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        self.by_identity.insert(identity, number);
        let order = Order { file: number, from: Source::File(file), bytes };
        if bytes > LARGE {
            let file = &mut self.all[number.0];
            (file.unasked, file.is_ready) = (Some(order), true);
        } else {
            self.order(order);
        }
        Ok(number)
    }

    /// The kernel's own library, which is the same in every process.
    pub fn vdso(&mut self, read: impl FnOnce() -> Option<Vec<u8>>) -> Option<FileNumber> {
        if self.vdso.is_none() {
            let bytes = read()?;
            let segments = gpuwhy_stacks::table::segments_of_bytes(&bytes).ok()?;
            let number = self.add(Path::new("[vdso]"), Path::new(""), segments);
            self.vdso = Some(number);
            self.order(Order { file: number, bytes: bytes.len() as u64, from: Source::Bytes(bytes) });
        }
        self.vdso
    }

    /// Code of this file is on a stack: it is kept open for its symbols, and gets its table.
    pub fn want(&mut self, number: FileNumber, symbols: &mut symbols::Symbolizer) {
        let file = &mut self.all[number.0];
        if !file.is_out_of_reach && file.symbols.is_none_or(|known| !symbols.is_kept(known)) {
            let found = symbols.file(&file.openable, &file.path);
            file.symbols = found.inspect_err(|error| tracing::debug!("{error:#}")).ok();
            file.is_out_of_reach = file.symbols.is_none();
        }
        if let Some(order) = file.unasked.take() {
            self.order(order);
        }
    }

    fn add(&mut self, path: &Path, openable: &Path, segments: Vec<Segment>) -> FileNumber {
        let (path, openable) = (path.to_path_buf(), openable.to_path_buf());
        self.all.push(CodeFile {
            path,
            openable,
            symbols: None,
            is_out_of_reach: false,
            segments,
            table: None,
            has_frame_pointers: false,
            is_ready: false,
            has_no_python: false,
            unasked: None,
        });
        FileNumber(self.all.len() - 1)
    }

    /// One for which there is no room waits until its file's code is on a stack.
    fn order(&mut self, order: Order) {
        // It listens as long as `self` lives.
        if let Err(TrySendError::Full(order)) = self.to_build.try_send(order) {
            let file = &mut self.all[order.file.0];
            (file.unasked, file.is_ready) = (Some(order), true);
        }
    }

    /// Gives the kernel side a table that is ready. Returns what there is to complain about.
    pub fn install(&mut self, built: Built, tables: &mut StackTables) -> Option<String> {
        let file = &mut self.all[built.file.0];
        file.is_ready = true;
        let table = match built.table {
            Ok(table) => table,
            Err(error) => {
                tracing::debug!("no unwind table for {}: {error:#}", file.path.display());
                return None;
            }
        };
        if table.rows.is_empty() {
            return None;
        }
        let rows: Vec<UnwindRow> =
            table.rows.iter().map(|row| UnwindRow { address: row.address, rule: row.rule.bits() }).collect();
        match tables.add_table(&rows) {
            Ok(id) => {
                file.table = Some(id);
                file.has_frame_pointers = table.trusts_frame_pointers;
                None
            }
            Err(error) => Some(format!("stacks through {} may be incomplete: {error:#}", file.path.display())),
        }
    }
}

impl CodeFile {
    /// What to take from addresses in memory to get those in the file.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        load_bias(&self.segments, start, offset)
    }
}

fn build(orders: &Receiver<Order>, built: &Sender<Built>) {
    let mut background = Background::begin();
    let mut waiting = BinaryHeap::new();
    let mut arrived = 0;
    let mut by_arrival = HashMap::new();
    loop {
        let next = match waiting.len() {
            0 => orders.recv().ok(),
            MOST_ORDERS.. => None,
            _ => orders.try_recv().ok(),
        };
        match next {
            Some(order) => {
                arrived += 1;
                waiting.push(Reverse((order.bytes, arrived)));
                by_arrival.insert(arrived, order);
            }
            None if waiting.is_empty() => return,
            None => {
                let Some(Reverse((_, which))) = waiting.pop() else { return };
                let Some(Order { file, from, .. }) = by_arrival.remove(&which) else { return };
                let table = match from {
                    Source::File(file) => Table::of_file(&file),
                    Source::Bytes(bytes) => Table::of_bytes(&bytes),
                };
                background.note();
                if built.send(Built { file, table }).is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuwhy_stacks::symbols::{Limits, Symbolizer};

    use super::*;

    #[test]
    fn a_file_that_could_not_be_opened_is_tried_again_when_somebody_opens_it() {
        let directory = tempfile::tempdir().unwrap();
        let [path, elsewhere] = ["program", "elsewhere"].map(|name| directory.path().join(name));
        std::fs::copy("/bin/true", &path).unwrap();
        let (mut files, _built) = Files::start();
        let mut symbols = Symbolizer::new(Limits::default());
        let mut can_be_named = |files: &mut Files, file| {
            files.want(file, &mut symbols);
            files.get(file).symbols.is_some()
        };
        let file = files.open(&path, &path).unwrap();
        std::fs::rename(&path, &elsewhere).unwrap();
        assert!(!can_be_named(&mut files, file));
        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(!can_be_named(&mut files, file));
        assert_eq!(files.open(&path, &path).unwrap(), file);
        assert!(can_be_named(&mut files, file));
    }

    #[test]
    fn a_table_for_which_there_is_no_room_waits_until_its_file_is_on_a_stack() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| directory.path().join(name));
        let (to_build, orders) = bounded(1);
        let mut files = Files { all: Vec::new(), by_identity: HashMap::new(), vdso: None, to_build };
        let [first, second] = [first, second].map(|path| {
            std::fs::copy("/bin/true", &path).unwrap();
            files.open(&path, &path).unwrap()
        });
        let ordered = || orders.try_iter().map(|order| order.file).collect::<Vec<_>>();
        assert_eq!(ordered(), [first]);
        assert!(files.get(second).is_ready, "nobody waits for it");
        files.want(second, &mut Symbolizer::new(Limits::default()));
        assert_eq!(ordered(), [second]);
    }
}
