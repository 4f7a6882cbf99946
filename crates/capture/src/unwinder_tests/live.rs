//! Stacks of this very process are those that the compiler's own unwinder finds.

use std::arch::asm;
use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::File;
use std::hint::black_box;
use std::process::Command;
use std::thread;

use gpuwhy_model::WalkEnd;
use gpuwhy_stacks::memory::{Memory, ProcessMemory};
use gpuwhy_stacks::table::{Table, load_bias};

use super::{MAX_NATIVE_FRAMES, RawStack, SHARD_ROWS, Start, World, types};
use crate::stacks::UnwindRow;

#[test]
fn a_threads_stack_is_walked_to_its_start_as_libgcc_walks_it() {
    compare_at_depths();
    thread::spawn(compare_at_depths).join().unwrap();
}

#[test]
fn the_main_threads_stack_is_walked_to_the_start_of_the_program() {
    let own = std::env::current_exe().unwrap();
    let status = Command::new(own).env(ON_MAIN_THREAD, "1").status().unwrap();
    assert_eq!(status.code(), Some(ON_MAIN_THREAD_DONE));
}

#[test]
fn a_stack_that_is_too_deep_is_cut_at_the_most_frames() {
    let world = this_process();
    let seen = descend(600, &world);
    assert!(seen.theirs.len() > 300, "only {} frames", seen.theirs.len());
    assert_eq!(seen.ours.end, WalkEnd::TooDeep);
    assert_eq!(seen.ours.native.len(), MAX_NATIVE_FRAMES);
    assert_eq!(seen.ours.native[1..], seen.theirs[1..MAX_NATIVE_FRAMES]);
}

#[test]
fn frames_of_other_libraries_and_signal_handlers_are_walked_through() {
    thread_local!(static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) });
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> i32 {
        // SAFETY: the handler was installed below, and does nothing that could not be done here.
        unsafe { libc::raise(libc::SIGUSR2) };
        0
    }
    extern "C" fn handle(_: i32) {
        SEEN.set(Some(look(&this_process())));
    }
    let depth = look(&this_process()).ours.native.len();
    let handler: extern "C" fn(i32) = handle;
    let mut values = [2_u64, 1];
    // SAFETY: two values of eight bytes; the handler runs at once, on this thread, inside of `compare`.
    unsafe {
        libc::signal(libc::SIGUSR2, handler as libc::sighandler_t);
        libc::qsort(values.as_mut_ptr().cast(), 2, 8, Some(compare));
    }
    let seen = SEEN.take().unwrap();
    seen.check();
    // The handler, the kernel's frame around it, raise, compare and qsort.
    assert!(seen.ours.native.len() >= depth + 4, "{} frames on top of {depth}", seen.ours.native.len());
}

fn compare_at_depths() {
    let world = this_process();
    for levels in [5, 50, 200] {
        let seen = descend(levels, &world);
        seen.check();
        assert!(seen.ours.native.len() as u32 > levels / 2, "{} frames", seen.ours.native.len());
    }
}

/// Instruction pointers as two walkers find them.
pub struct Seen {
    pub ours: RawStack,
    theirs: Vec<u64>,
}

impl Seen {
    fn check(&self) {
        assert_eq!(self.ours.end, WalkEnd::Complete, "{:x?}", self.ours.native);
        // The first is in the same function, but not at the same instruction.
        assert_eq!(self.ours.native[1..], self.theirs[1..]);
    }
}

#[inline(never)]
pub fn look(world: &World<'_>) -> Seen {
    let mut theirs = Vec::with_capacity(1024);
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: the pointer is what `note` takes it for. The rest only reads registers.
    unsafe {
        _Unwind_Backtrace(note, (&raw mut theirs).cast());
        asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
    }
    Seen { ours: world.walk(Start { ip, sp, bp, thread_id: 0 }), theirs }
}

type Note = extern "C" fn(*mut c_void, *mut c_void) -> i32;

unsafe extern "C" {
    /// Calls a function for each frame, as long as it returns 0.
    fn _Unwind_Backtrace(note: Note, argument: *mut c_void) -> i32;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

extern "C" fn note(frame: *mut c_void, into: *mut c_void) -> i32 {
    // SAFETY: `look` passes its own list.
    let into = unsafe { &mut *into.cast::<Vec<u64>>() };
    // SAFETY: the unwinder passes its own frame.
    let ip = unsafe { _Unwind_GetIP(frame) } as u64;
    // It tells of the nothing above the outermost frame as well.
    into.extend((ip != 0).then_some(ip));
    0
}

/// Calls itself in different ways, with about one frame for each level.
#[inline(never)]
pub fn descend(levels: u32, world: &World<'_>) -> Seen {
    let below = levels.saturating_sub(1);
    let seen = match levels {
        0 => look(world),
        _ if levels.is_multiple_of(7) => {
            let way: Box<dyn FnOnce(u32) -> Seen> = Box::new(|levels| descend(levels, world));
            black_box(way)(below.saturating_sub(1))
        }
        _ if levels.is_multiple_of(5) => black_box::<&dyn Way>(&WithRoom([levels; 100])).descend(below, world),
        _ if levels.is_multiple_of(3) => black_box::<&dyn Way>(&Plain).descend(below, world),
        _ => descend(below, world),
    };
    // Nothing is left to do after a call in the last place, and then it has no frame.
    black_box(seen)
}

trait Way {
    fn descend(&self, levels: u32, world: &World<'_>) -> Seen;
}

struct Plain;

impl Way for Plain {
    fn descend(&self, levels: u32, world: &World<'_>) -> Seen {
        black_box(descend(levels.saturating_sub(1), world))
    }
}

/// Has a large frame.
struct WithRoom([u32; 100]);

impl Way for WithRoom {
    fn descend(&self, levels: u32, world: &World<'_>) -> Seen {
        let mut room = self.0.map(|value| value ^ levels);
        let seen = descend(levels.saturating_sub(1), world);
        black_box(&mut room);
        seen
    }
}

/// This process's memory.
pub struct OwnMemory;

impl Memory for OwnMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        ProcessMemory { pid: std::process::id() }.read(address, into)
    }
}

/// All code of this process, with its tables.
fn this_process() -> World<'static> {
    let mut world = World::new(&OwnMemory);
    for code in executable() {
        let table = match code.path.as_str() {
            "[vdso]" => vdso(&code),
            path => Table::of_file(&File::open(path).unwrap()).unwrap(),
        };
        let bias = load_bias(&table.segments, code.start, code.offset).expect(&code.path);
        let rows: Vec<_> =
            table.rows.iter().map(|row| UnwindRow { address: row.address, rule: row.rule.bits() }).collect();
        let flags = u32::from(table.trusts_frame_pointers) * types::mapping_flags::MAPPING_FRAME_POINTERS.0;
        let mapping = types::code_mapping { start: code.start, end: code.end, bias, flags, ..Default::default() };
        add(&mut world, mapping, &rows);
    }
    world
}

/// One mapping for each piece of a table that fits into a shard.
fn add(world: &mut World<'static>, mapping: types::code_mapping, rows: &[UnwindRow]) {
    let pieces: Vec<_> = rows.chunks(SHARD_ROWS).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let mut shard = piece.to_vec();
        shard.resize(SHARD_ROWS, super::OTHERS_ROW);
        world.shards.push(shard);
        let at = |piece: &&[UnwindRow]| mapping.bias.wrapping_add(piece[0].address.into());
        world.mappings.push(types::code_mapping {
            start: if index == 0 { mapping.start } else { at(piece) },
            end: pieces.get(index + 1).map_or(mapping.end, at),
            shard: world.shards.len() as u32 - 1,
            rows: piece.len() as u32,
            ..mapping
        });
    }
}

/// An executable mapping.
pub struct Code {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub path: String,
}

pub fn executable() -> Vec<Code> {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let code = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let &[range, permissions, offset, _, _, path] = fields.as_slice() else { return None };
        let (start, end) = range.split_once('-').unwrap();
        let is_code = permissions.contains('x') && path != "[vsyscall]";
        is_code.then(|| Code { start: hex(start), end: hex(end), offset: hex(offset), path: path.to_owned() })
    };
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter_map(code).collect()
}

fn vdso(code: &Code) -> Table {
    let mut image = vec![0; (code.end - code.start) as usize];
    assert!(OwnMemory.read(code.start, &mut image));
    Table::of_bytes(&image).unwrap()
}

/// Tests run on threads of their own. What is to run on the main thread runs before `main`, in a process of its own.
const ON_MAIN_THREAD: &str = "GPUWHY_TEST_ON_MAIN_THREAD";
const ON_MAIN_THREAD_DONE: i32 = 77;

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    if std::env::var_os(ON_MAIN_THREAD).is_some() {
        compare_at_depths();
        // SAFETY: ends the process, in which nothing else runs.
        unsafe { libc::_exit(ON_MAIN_THREAD_DONE) };
    }
}
