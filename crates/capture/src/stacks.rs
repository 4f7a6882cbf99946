//! What the kernel side knows of how to walk stacks: the code that processes map, unwind tables and Python's layouts.
//! Unwind tables lie in memory that is mapped here as well; a process's code takes two system calls.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuwhy_model::{PythonEnd, StackMoment, WalkEnd};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

use crate::families::StackMaps;
use crate::skeleton::types;
use crate::wire::{bytes_of, read};

pub use types::{python_flags as PythonFlags, python_layout as PythonLayout};

/// A row of an unwind table, see `struct unwind_row` in `wire.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UnwindRow {
    pub address: u32,
    pub rule: u32,
}

/// Code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    pub addresses: Range<u64>,
    /// What to take from an address to get the one in its file.
    pub bias: u64,
    pub table: Option<TableId>,
    pub has_frame_pointers: bool,
}

/// Python in a process, by the address of its runtime and of the type of code objects.
#[derive(Clone, Debug)]
pub struct PythonProcess {
    pub layout: PythonLayout,
    pub runtime: u64,
    pub code_type: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId(usize);

/// How many walks ended how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkCount {
    pub moment: StackMoment,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
    pub count: u64,
    pub ns: u64,
}

pub struct StackTables {
    mappings: MapHandle,
    free: Vec<Range<u32>>,
    /// Rows that a walk may still be looking at.
    retired: Vec<(Instant, Range<u32>)>,
    processes: MapHandle,
    by_pid: HashMap<u32, Range<u32>>,
    /// Counts how often any process's mappings were set.
    versions: u32,
    outer: MapHandle,
    shards: Vec<Shard>,
    tables: Vec<Vec<Piece>>,
    layouts: MapHandle,
    known_layouts: Vec<PythonLayout>,
}

/// A part of all rows, in memory that the kernel side reads.
struct Shard {
    _map: MapHandle,
    memory: MmapRaw,
    used: u32,
}

/// The part of a table that lies in one shard, and the addresses that it tells of.
#[derive(Clone, Debug)]
struct Piece {
    shard: u32,
    rows: Range<u32>,
    addresses: Range<u64>,
}

const SHARD_ROWS: u32 = types::limits::SHARD_ROWS.0;
const MAX_SHARDS: usize = types::limits::MAX_SHARDS.0 as usize;
const MAX_MAPPINGS: u32 = types::limits::MAX_MAPPINGS.0;

/// No walk takes longer.
const WALKS_END: Duration = Duration::from_secs(1);

impl StackTables {
    pub fn new(maps: &StackMaps) -> Result<Self> {
        let handle = |map: &MapHandle| MapHandle::try_from(map).context("share a map");
        Ok(Self {
            mappings: handle(&maps.code_mappings)?,
            free: std::iter::once(0..MAX_MAPPINGS).collect(),
            retired: Vec::new(),
            processes: handle(&maps.walked_processes)?,
            by_pid: HashMap::new(),
            versions: 0,
            outer: handle(&maps.unwind_shards)?,
            shards: Vec::new(),
            tables: Vec::new(),
            layouts: handle(&maps.python_layouts)?,
            known_layouts: Vec::new(),
        })
    }

    /// Makes a file's rows available. They are sorted by address. Fails when memory for tables is used up.
    pub fn add_table(&mut self, rows: &[UnwindRow]) -> Result<TableId> {
        let room = self.shards.last().map_or(0, |shard| SHARD_ROWS - shard.used);
        let room_left = (MAX_SHARDS - self.shards.len()) * SHARD_ROWS as usize + room as usize;
        if rows.len() > room_left {
            bail!("no memory left for {} unwind rows", rows.len());
        }
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = rows;
        while let Some(first) = rest.first() {
            let from = if pieces.is_empty() { 0 } else { u64::from(first.address) };
            if let Some(last) = pieces.last_mut() {
                last.addresses.end = from;
            }
            let (shard, range, later) = self.put(rest)?;
            pieces.push(Piece { shard, rows: range, addresses: from..u64::MAX });
            rest = later;
        }
        self.tables.push(pieces);
        Ok(TableId(self.tables.len() - 1))
    }

    /// Puts as many rows as fit into the last shard.
    fn put<'rows>(&mut self, rows: &'rows [UnwindRow]) -> Result<(u32, Range<u32>, &'rows [UnwindRow])> {
        if self.shards.last().is_none_or(|shard| shard.used == SHARD_ROWS) {
            self.add_shard()?;
        }
        let index = self.shards.len() - 1;
        let shard = &mut self.shards[index];
        let count = rows.len().min((SHARD_ROWS - shard.used) as usize);
        let (now, later) = rows.split_at(count);
        // SAFETY: the shard has room for SHARD_ROWS rows, of which `used` are taken, and nobody else writes to it; rows
        // behind `used` are looked at by no walk, since no mapping names them yet.
        unsafe {
            let place = shard.memory.as_mut_ptr().cast::<UnwindRow>().add(shard.used as usize);
            place.copy_from_nonoverlapping(now.as_ptr(), count);
        }
        let range = shard.used..shard.used + count as u32;
        shard.used = range.end;
        Ok((index as u32, range, later))
    }

    fn add_shard(&mut self) -> Result<()> {
        let bytes = size_of::<UnwindRow>() * SHARD_ROWS as usize;
        // SAFETY: a struct of integers, for which zero is the documented default; `sz` and the flags are set below.
        let mut options: libbpf_rs::libbpf_sys::bpf_map_create_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as u64;
        options.map_flags = libbpf_rs::libbpf_sys::BPF_F_MMAPABLE;
        let map = MapHandle::create(MapType::Array, Some("unwind_rows"), 4, bytes as u32, 1, &options)
            .context("create memory for unwind rows")?;
        let memory =
            MmapOptions::new().len(bytes).map_raw(map.as_fd().as_raw_fd()).context("map memory for unwind rows")?;
        let (key, fd) = ((self.shards.len() as u32).to_ne_bytes(), map.as_fd().as_raw_fd().to_ne_bytes());
        self.outer.update(&key, &fd, MapFlags::ANY).context("install memory for unwind rows")?;
        self.shards.push(Shard { _map: map, memory, used: 0 });
        Ok(())
    }

    /// Memory that tables take in the kernel.
    pub fn table_bytes(&self) -> usize {
        self.shards.len() * SHARD_ROWS as usize * size_of::<UnwindRow>()
    }

    /// Lets a process's stacks be walked from now on, or in another way. Mappings are in the order of addresses.
    pub fn set_process(
        &mut self,
        pid: u32,
        identity: u32,
        mappings: &[CodeMapping],
        python: Option<&PythonProcess>,
    ) -> Result<()> {
        self.reclaim();
        let rows: Vec<types::code_mapping> = mappings.iter().flat_map(|mapping| self.rows_of(mapping)).collect();
        let range = self.allocate(rows.len() as u32)?;
        self.write_mappings(range.clone(), &rows).with_context(|| format!("tell of the code of process {pid}"))?;
        self.versions = self.versions.wrapping_add(1);
        let process = types::walked_process {
            first_mapping: range.start,
            mappings: range.len() as u32,
            identity,
            version: self.versions,
            reserved: 0,
            python_layout: python.map(|python| self.layout_number(python.layout)).transpose()?.unwrap_or(0),
            python_runtime: python.map_or(0, |python| python.runtime),
            python_code_type: python.map_or(0, |python| python.code_type),
        };
        self.processes
            .update(&pid.to_ne_bytes(), bytes_of(&process), MapFlags::ANY)
            .with_context(|| format!("let stacks of process {pid} be walked"))?;
        if let Some(old) = self.by_pid.insert(pid, range) {
            self.retired.push((Instant::now(), old));
        }
        Ok(())
    }

    /// No process refers to these rows yet.
    fn write_mappings(&self, range: Range<u32>, rows: &[types::code_mapping]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let keys: Vec<u8> = range.flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = rows.iter().flat_map(bytes_of).copied().collect();
        Ok(self.mappings.update_batch(&keys, &values, rows.len() as u32, MapFlags::ANY, MapFlags::ANY)?)
    }

    pub fn remove_process(&mut self, pid: u32) {
        if let Some(old) = self.by_pid.remove(&pid) {
            // It is not there any more when the whole map is gone.
            let _ = self.processes.delete(&pid.to_ne_bytes());
            self.retired.push((Instant::now(), old));
        }
    }

    /// One row for each piece of the mapping's table.
    fn rows_of(&self, mapping: &CodeMapping) -> Vec<types::code_mapping> {
        let Range { start, end } = mapping.addresses.clone();
        let flags = if mapping.has_frame_pointers { types::mapping_flags::MAPPING_FRAME_POINTERS.0 } else { 0 };
        let plain = types::code_mapping { start, end, bias: mapping.bias, flags, ..Default::default() };
        let Some(pieces) = mapping.table.and_then(|table| self.tables.get(table.0)) else { return vec![plain] };
        let in_memory = |address: u64| address.saturating_add(mapping.bias);
        let part = |piece: &Piece| {
            let (from, to) = (in_memory(piece.addresses.start).max(start), in_memory(piece.addresses.end).min(end));
            let (first_row, rows) = (piece.rows.start, piece.rows.len() as u32);
            (from < to).then_some(types::code_mapping {
                start: from,
                end: to,
                shard: piece.shard,
                first_row,
                rows,
                ..plain
            })
        };
        pieces.iter().filter_map(part).collect()
    }

    fn layout_number(&mut self, layout: PythonLayout) -> Result<u32> {
        let known = self.known_layouts.iter().position(|known| bytes_of(known) == bytes_of(&layout));
        if let Some(index) = known {
            return Ok(index as u32 + 1);
        }
        let index = self.known_layouts.len() as u32;
        if index >= types::limits::MAX_LAYOUTS.0 {
            bail!("too many different Python versions at once");
        }
        self.layouts
            .update(&index.to_ne_bytes(), bytes_of(&layout), MapFlags::ANY)
            .context("describe a Python version")?;
        self.known_layouts.push(layout);
        Ok(index + 1)
    }

    fn allocate(&mut self, count: u32) -> Result<Range<u32>> {
        let place = self.free.iter_mut().find(|range| range.len() as u32 >= count);
        let place = place.with_context(|| format!("no room for {count} more mappings"))?;
        let taken = place.start..place.start + count;
        place.start = taken.end;
        Ok(taken)
    }

    fn reclaim(&mut self) {
        let (ended, waiting) = std::mem::take(&mut self.retired)
            .into_iter()
            .partition(|(retired, _): &(Instant, _)| retired.elapsed() > WALKS_END);
        self.retired = waiting;
        let ended: Vec<(Instant, Range<u32>)> = ended;
        self.free.extend(ended.into_iter().map(|(_, range)| range));
        self.free.retain(|range| !range.is_empty());
        self.free.sort_by_key(|range| range.start);
        self.free.dedup_by(|next, before| {
            let touches = before.end == next.start;
            if touches {
                before.end = next.end;
            }
            touches
        });
    }
}

fn per_cpu(map: &MapHandle) -> Result<Vec<types::walk_counts>> {
    let per_cpu = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).context("read how walks ended")?;
    Ok(per_cpu.unwrap_or_default().iter().filter_map(|bytes| read(bytes)).collect())
}

/// How often each kind of walk ended in each way, since the start, and how long that took.
pub(crate) fn walk_counts(map: &MapHandle) -> Result<Vec<WalkCount>> {
    let per_cpu = per_cpu(map)?;
    let mut counts = Vec::new();
    for &moment in StackMoment::ALL {
        for &end in WalkEnd::ALL {
            for &python_end in PythonEnd::ALL {
                let of_cpus = per_cpu.iter().map(|cpu| cpu.ends[moment as usize][end as usize][python_end as usize]);
                let (count, ns) = of_cpus.fold((0, 0), |(count, ns), cpu| (count + cpu.count, ns + cpu.ns));
                if count > 0 {
                    counts.push(WalkCount { moment, end, python_end, count, ns });
                }
            }
        }
    }
    Ok(counts)
}

/// Changes how much walking may take: nanoseconds in each 2^20, or all there is to walk.
pub(crate) fn set_allowance(map: &MapHandle, allowance: u32, take_all: bool) -> Result<()> {
    let settings = types::stack_settings { allowance, take_all: take_all.into() };
    map.update(&0u32.to_ne_bytes(), bytes_of(&settings), MapFlags::ANY).context("change how many stacks are taken")
}
