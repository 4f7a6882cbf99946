//! Where no code has a table, frame pointers lead as far as they can be believed.

use std::arch::global_asm;
use std::ffi::c_void;

use gpuwhy_model::WalkEnd;
use gpuwhy_stacks::memory::Memory;
use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::live::{OwnMemory, Seen, descend, executable};
use super::{RawStack, Start, World};

#[test]
fn without_tables_every_frame_of_this_process_still_follows_a_call() {
    for levels in [0, 5, 50, 200] {
        let Seen { ours, .. } = descend(levels, &without_tables());
        check(&ours);
    }
}

#[test]
fn without_tables_code_that_keeps_frame_pointers_is_walked_through() {
    for levels in [1, 5, 50, 200] {
        let mut seen: Option<RawStack> = None;
        // SAFETY: the function calls `look_from` with what it is given, which is what that takes it for.
        unsafe { keeps_frame_pointers(levels, look_from, (&raw mut seen).cast()) };
        let ours = seen.unwrap();
        check(&ours);
        assert!(ours.native.len() > levels as usize, "{:x?}", ours.native);
        let recursion = &ours.native[1..levels as usize];
        assert!(recursion.iter().all(|address| *address == recursion[0]), "{:x?}", ours.native);
    }
}

fn check(ours: &RawStack) {
    assert!(matches!(ours.end, WalkEnd::NoFramePointer | WalkEnd::Complete), "{:?}", ours.end);
    for address in &ours.native[1..] {
        assert!(follows_call(*address), "{address:#x} of {:x?}", ours.native);
    }
}

fn without_tables() -> World<'static> {
    let mut world = World::new(&OwnMemory);
    for code in executable() {
        world.map_without_table(code.start..code.end);
    }
    world
}

/// Whether a disassembler finds a call that ends at an address.
fn follows_call(address: u64) -> bool {
    (2..=8).any(|length| {
        let mut bytes = vec![0; length];
        let start = address - length as u64;
        assert!(OwnMemory.read(start, &mut bytes));
        let call = Decoder::with_ip(64, &bytes, start, DecoderOptions::NONE).decode();
        call.len() == length && matches!(call.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    })
}

type LookFrom = extern "C" fn(*mut c_void, u64, u64, u64);

extern "C" fn look_from(seen: *mut c_void, ip: u64, sp: u64, bp: u64) {
    // SAFETY: the test passes this, and waits.
    let seen = unsafe { &mut *seen.cast::<Option<RawStack>>() };
    *seen = Some(without_tables().walk(Start { ip, sp, bp, thread_id: 0 }));
}

unsafe extern "C" {
    /// Calls itself so many times, then `look_from` with its registers.
    fn keeps_frame_pointers(levels: u64, look_from: LookFrom, seen: *mut c_void);
}

global_asm!(
    ".text",
    "keeps_frame_pointers:",
    "push rbp",
    "mov rbp, rsp",
    "dec rdi",
    "jz 2f",
    "call keeps_frame_pointers",
    "pop rbp",
    "ret",
    "2:",
    "mov rax, rsi",
    "mov rdi, rdx",
    "lea rsi, [rip]",
    "mov rdx, rsp",
    "mov rcx, rbp",
    // Calls want the stack at a multiple of 16, which holds here whatever the level.
    "call rax",
    "pop rbp",
    "ret",
);
