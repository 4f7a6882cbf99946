//! Stacks of this very process, walked by rows, are those that the C++ runtime's unwinder finds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::arch::asm;
use std::cell::RefCell;
use std::fs::File;

use gpuwhy_stacks::memory::{Memory, ProcessMemory};
use gpuwhy_stacks::table::{FramePointer, Kind, Rule, Table, load_bias};

struct Module {
    range: std::ops::Range<u64>,
    bias: u64,
    table: Table,
}

/// Executable mappings of this process, with the vDSO.
fn modules() -> Vec<Module> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter_map(module).collect()
}

fn module(line: &str) -> Option<Module> {
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let fields: Vec<_> = line.split_whitespace().collect();
    let &[range, permissions, offset, _, _, path] = fields.as_slice() else { return None };
    let (start, end) = range.split_once('-').unwrap();
    let (start, end) = (hex(start), hex(end));
    if !permissions.contains('x') || path == "[vsyscall]" {
        return None;
    }
    let table = if path == "[vdso]" { vdso(start, end) } else { Table::of_file(&File::open(path).unwrap()).unwrap() };
    let bias = load_bias(&table.segments, start, hex(offset)).expect(line);
    Some(Module { range: start..end, bias, table })
}

fn vdso(start: u64, end: u64) -> Table {
    let mut image = vec![0; (end - start) as usize];
    assert!(ProcessMemory { pid: std::process::id() }.read(start, &mut image));
    Table::of_bytes(&image).unwrap()
}

/// Return addresses as the kernel side finds them, from where `ip`, `sp` and `bp` are, and how the walk ended.
fn walk(modules: &[Module], mut ip: u64, mut sp: u64, mut bp: u64) -> (Vec<u64>, Kind) {
    let memory = ProcessMemory { pid: std::process::id() };
    let read = |address| memory.read_u64(address).expect("the stack is readable");
    let (mut found, mut is_exact) = (Vec::new(), true);
    loop {
        let rule = rule_at(modules, if is_exact { ip } else { ip - 1 });
        let offset = rule.cfa_offset();
        let cfa = match rule.kind() {
            Kind::None | Kind::End => return (found, rule.kind()),
            Kind::Signal => {
                (ip, bp, sp) = (read(sp + 168), read(sp + 120), read(sp + 160));
                is_exact = true;
                found.push(ip);
                continue;
            }
            Kind::Sp => sp.wrapping_add_signed(offset),
            Kind::Bp => bp.wrapping_add_signed(offset),
            Kind::Plt => sp + 8 + if ip & 15 >= 11 { 8 } else { 0 },
            Kind::DerefBp => read(bp.wrapping_add_signed(offset)),
            Kind::DerefSp => read(sp.wrapping_add_signed(offset)),
        };
        match rule.frame_pointer() {
            FramePointer::Unchanged => (),
            FramePointer::AtCfa(offset) => bp = read(cfa.wrapping_add_signed(offset)),
            FramePointer::AtBp(offset) => bp = read(bp.wrapping_add_signed(offset)),
            FramePointer::Unknown => bp = 0,
        }
        assert!(cfa > sp, "{rule:?} at {ip:#x} leads nowhere");
        (ip, sp, is_exact) = (read(cfa - 8), cfa, false);
        found.push(ip);
    }
}

fn rule_at(modules: &[Module], ip: u64) -> Rule {
    let module = modules.iter().find(|module| module.range.contains(&ip));
    module.map_or(Rule::NONE, |module| module.table.rule_at(ip.wrapping_sub(module.bias)))
}

/// Walks from here and compares with what `backtrace` of the C library finds from here.
#[inline(never)]
fn check_here() -> usize {
    let modules = modules();
    let mut theirs = [std::ptr::null_mut(); 256];
    // SAFETY: the array is as long as said.
    let count = unsafe { libc::backtrace(theirs.as_mut_ptr(), theirs.len() as i32) };
    let theirs: Vec<_> = theirs[..count as usize].iter().map(|address| *address as u64).collect();
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: only reads registers.
    unsafe {
        asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
    }
    let (ours, end) = walk(&modules, ip, sp, bp);
    // Their first is in this function, ours are the callers'.
    assert_eq!(ours[..], theirs[1..]);
    assert_eq!(end, Kind::End);
    ours.len()
}

thread_local! {
    static DEPTH: RefCell<Option<usize>> = const { RefCell::new(None) };
}

fn note_depth() {
    DEPTH.with(|depth| *depth.borrow_mut() = Some(check_here()));
}

fn noted_depth() -> usize {
    DEPTH.with(|depth| depth.borrow_mut().take()).unwrap()
}

#[test]
fn a_stack_of_a_thread_is_walked_to_its_start() {
    assert!(check_here() > 5);
}

#[test]
fn frames_of_other_libraries_are_walked_through() {
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> i32 {
        note_depth();
        0
    }
    let depth = check_here();
    let mut values = [2_u64, 1];
    // SAFETY: two values of eight bytes.
    unsafe { libc::qsort(values.as_mut_ptr().cast(), 2, 8, Some(compare)) };
    assert!(noted_depth() >= depth + 2);
}

#[test]
fn a_signal_handlers_stack_leads_to_what_was_interrupted() {
    extern "C" fn handle(_: i32) {
        note_depth();
    }
    let depth = check_here();
    let handler: extern "C" fn(i32) = handle;
    // SAFETY: the handler runs at once, on this thread, when nothing else is under way.
    unsafe {
        libc::signal(libc::SIGUSR2, handler as libc::sighandler_t);
        libc::raise(libc::SIGUSR2);
    }
    assert!(noted_depth() >= depth + 2);
}

#[test]
fn the_vdso_has_rows() {
    // SAFETY: only asks.
    let address = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    let modules = modules();
    let Some(module) = modules.iter().find(|module| module.range.contains(&address)) else {
        assert_eq!(address, 0, "the kernel gives a vDSO, but it is not among the mappings");
        return;
    };
    assert!(module.table.rows.iter().any(|row| row.rule.kind() == Kind::Sp), "{:?}", module.table);
}
