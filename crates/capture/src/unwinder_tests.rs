//! The kernel side's stack walker, run in user space (`bpf/unwind_user.c`) on memory that tests make or have.
//!
//! [`World::walk`] checks of every walk that it ends within its bounds, and that its record can be decoded.

mod fake;
mod frame_pointers;
mod hostile;
mod live;
mod python;
mod python_differences;
mod python_limits;
mod random;
mod rules;

use std::ffi::c_void;
use std::ops::Range;

use gpuwhy_stacks::memory::Memory;
use gpuwhy_stacks::table::Rule;

use crate::skeleton::types;
use crate::stacks::{PythonLayout, UnwindRow};
use crate::wire::{RawStack, Record};

const MAX_NATIVE_FRAMES: usize = types::limits::MAX_NATIVE_FRAMES.0 as usize;
const MAX_PYTHON_STEPS: u32 = 640;
const SHARD_ROWS: usize = types::limits::SHARD_ROWS.0 as usize;
const STACK_WORDS: u64 = types::limits::STACK_WORDS.0 as u64;

/// What a walk may look at. Around it lie mappings and rows of others, which it may not.
struct World<'a> {
    memory: &'a dyn Memory,
    mappings: Vec<types::code_mapping>,
    shards: Vec<Vec<UnwindRow>>,
    /// What return probes have replaced: the place on the stack, and what was there.
    hidden: Vec<(u64, u64)>,
    python: Option<Python>,
}

#[derive(Clone, Copy, Debug)]
struct Python {
    layout: PythonLayout,
    runtime: u64,
    code_type: u64,
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Start {
    ip: u64,
    sp: u64,
    bp: u64,
    thread_id: u64,
}

impl<'a> World<'a> {
    fn new(memory: &'a dyn Memory) -> Self {
        Self { memory, mappings: Vec::new(), shards: Vec::new(), hidden: Vec::new(), python: None }
    }

    /// Maps code whose addresses in the file start at 0, with a table of its own.
    fn map(&mut self, addresses: Range<u64>, rows: &[(u32, Rule)]) -> &mut types::code_mapping {
        let rows: Vec<_> = rows.iter().map(|(address, rule)| (*address, rule.bits())).collect();
        self.map_raw(addresses, &rows)
    }

    /// The rows lie in the order given, in a shard that holds others' as well.
    fn map_raw(&mut self, addresses: Range<u64>, rows: &[(u32, u32)]) -> &mut types::code_mapping {
        let mut shard = vec![OTHERS_ROW; SHARD_ROWS];
        for (row, &(address, rule)) in shard.iter_mut().skip(FIRST_ROW as usize).zip(rows) {
            *row = UnwindRow { address, rule };
        }
        self.shards.push(shard);
        self.mappings.push(types::code_mapping {
            start: addresses.start,
            end: addresses.end,
            bias: addresses.start,
            shard: self.shards.len() as u32 - 1,
            first_row: FIRST_ROW,
            rows: rows.len() as u32,
            flags: 0,
        });
        let last = self.mappings.len() - 1;
        &mut self.mappings[last]
    }

    /// Code that nothing is known of but that it is code.
    fn map_without_table(&mut self, addresses: Range<u64>) {
        self.mappings.push(types::code_mapping { start: addresses.start, end: addresses.end, ..Default::default() });
    }

    fn walk(&self, from: Start) -> RawStack {
        let walked = self.walk_unchecked(from);
        assert!(walked.native_steps as usize <= MAX_NATIVE_FRAMES + 1, "{} steps", walked.native_steps);
        assert!(walked.python_steps <= MAX_PYTHON_STEPS, "{} steps", walked.python_steps);
        assert!(walked.words <= STACK_WORDS, "{} words", walked.words);
        let Some(Record::Stack(stack)) = Record::decode(walked.bytes()) else {
            panic!(
                "{} words are not the frames that were counted: {} of Python and {} native",
                walked.words, walked.record.python_frames, walked.record.native_frames
            );
        };
        stack
    }

    fn walk_unchecked(&self, from: Start) -> Box<Walked> {
        let mut mappings = vec![OTHERS_MAPPING];
        mappings.extend(&self.mappings);
        mappings.push(OTHERS_MAPPING);
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.as_ptr()).collect();
        let process = types::walked_process {
            first_mapping: 1,
            mappings: self.mappings.len() as u32,
            python_runtime: self.python.map_or(0, |python| python.runtime),
            python_code_type: self.python.map_or(0, |python| python.code_type),
            ..Default::default()
        };
        let world = RawWorld {
            context: std::ptr::from_ref(self).cast(),
            read,
            hidden_return,
            mappings: mappings.as_ptr(),
            shards: shards.as_ptr(),
            process: &raw const process,
            layout: self.python.as_ref().map_or(std::ptr::null(), |python| &raw const python.layout),
            mapping_count: mappings.len() as u32,
            shard_count: shards.len() as u32,
        };
        let mut walked = Box::new(Walked::default());
        // SAFETY: everything that the world points to lives until the call returns and is as long as said; shards have
        // SHARD_ROWS rows each. The functions do not unwind.
        unsafe { walk_in_user_space(&raw const world, &raw const from, &raw mut *walked) };
        walked
    }
}

/// Where a table starts in its shard.
const FIRST_ROW: u32 = 100;
/// What must not be looked at: believing it ends the walk as if it were complete.
const OTHERS_ROW: UnwindRow = UnwindRow { address: 0, rule: types::rule_kind::RULE_END.0 };
const OTHERS_MAPPING: types::code_mapping =
    types::code_mapping { start: 0, end: u64::MAX, bias: 0, shard: 0, first_row: 0, rows: 1, flags: 0 };

/// `struct world` of `unwind_user.c`.
#[repr(C)]
struct RawWorld {
    context: *const c_void,
    read: unsafe extern "C" fn(*const c_void, u64, *mut u8, u32) -> bool,
    hidden_return: unsafe extern "C" fn(*const c_void, u64) -> u64,
    mappings: *const types::code_mapping,
    shards: *const *const UnwindRow,
    process: *const types::walked_process,
    layout: *const PythonLayout,
    mapping_count: u32,
    shard_count: u32,
}

/// `struct walked` of `unwind_user.c`.
#[derive(Default)]
#[repr(C)]
struct Walked {
    python_steps: u32,
    native_steps: u32,
    words: u64,
    record: types::stack_record,
}

impl Walked {
    /// What the kernel side would have put into the ring.
    fn bytes(&self) -> &[u8] {
        let bytes = std::mem::offset_of!(types::stack_record, words) + self.words as usize * size_of::<u64>();
        // SAFETY: a struct of integers without padding, of which no more than all is taken.
        unsafe { std::slice::from_raw_parts((&raw const self.record).cast(), bytes.min(size_of_val(&self.record))) }
    }
}

#[link(name = "unwind_user", kind = "static")]
unsafe extern "C" {
    fn walk_in_user_space(world: *const RawWorld, from: *const Start, walked: *mut Walked);
}

unsafe extern "C" fn read(context: *const c_void, address: u64, into: *mut u8, bytes: u32) -> bool {
    // SAFETY: `walk_unchecked` passes itself.
    let world = unsafe { &*context.cast::<World<'_>>() };
    // SAFETY: the walker has checked that this is inside its own memory, which nobody else uses meanwhile.
    let into = unsafe { std::slice::from_raw_parts_mut(into, bytes as usize) };
    world.memory.read(address, into)
}

unsafe extern "C" fn hidden_return(context: *const c_void, slot: u64) -> u64 {
    // SAFETY: as above.
    let world = unsafe { &*context.cast::<World<'_>>() };
    world.hidden.iter().find(|(place, _)| *place == slot).map_or(0, |(_, hidden)| *hidden)
}
