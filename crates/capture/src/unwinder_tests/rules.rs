//! Each kind of rule leads to the frame that it describes.

use gpuwhy_model::WalkEnd::{Complete, NoMapping};
use gpuwhy_stacks::table::FramePointer::{AtBp, AtCfa, Unchanged, Unknown};
use gpuwhy_stacks::table::{FramePointer, Kind, Rule};

use super::fake::Fake;
use super::{Start, World, types};

pub const CODE: u64 = 0x40_0000;
pub const CODE_END: u64 = CODE + 0x1000;
pub const STACK: u64 = 0x7fff_0000_0000;

/// A function in which the walk starts, one in which the tested rule holds, and the outermost.
const INNER: u64 = CODE + 0x100;
const TESTED: u64 = CODE + 0x200;
const OUTER: u64 = CODE + 0x300;

pub fn rule(kind: Kind, offset: i64, frame_pointer: FramePointer) -> Rule {
    Rule::new(kind, offset, frame_pointer).unwrap()
}

/// Walks from `INNER`, whose frame is its return address, into a frame with the rule.
fn walk_through(tested: Rule, bp: u64, stack: &[u64]) -> (Vec<u64>, gpuwhy_model::WalkEnd) {
    let mut memory = Fake::default();
    memory.put_words(STACK, &[&[TESTED + 5], stack].concat());
    let mut world = World::new(&memory);
    let leave_inner = rule(Kind::Sp, 8, Unchanged);
    world.map(CODE..CODE_END, &[(0, Rule::NONE), (0x100, leave_inner), (0x200, tested), (0x300, Rule::END)]);
    let stack = world.walk(Start { ip: INNER, sp: STACK, bp, thread_id: 0 });
    (stack.native, stack.end)
}

#[test]
fn the_frame_ends_above_the_stack_pointer() {
    let (frames, end) = walk_through(rule(Kind::Sp, 24, Unchanged), 0, &[1, 2, OUTER + 1]);
    assert_eq!((frames, end), (vec![INNER, TESTED + 5, OUTER + 1], Complete));
}

#[test]
fn a_call_at_the_end_of_a_function_belongs_to_it_though_it_returns_to_the_next() {
    let (frames, end) = walk_through(rule(Kind::Sp, 8, Unchanged), 0, &[OUTER, OUTER + 1]);
    assert_eq!((frames, end), (vec![INNER, TESTED + 5, OUTER, OUTER + 1], Complete));
}

#[test]
fn the_frame_ends_above_the_frame_pointer() {
    let (frames, end) = walk_through(rule(Kind::Bp, 16, AtCfa(-16)), STACK + 16, &[1, 2, OUTER + 1]);
    assert_eq!((frames, end), (vec![INNER, TESTED + 5, OUTER + 1], Complete));
}

#[test]
fn the_frame_ends_where_memory_says() {
    let realigned = rule(Kind::DerefBp, -8, AtBp(0));
    let (frames, end) = walk_through(realigned, STACK + 16, &[STACK + 40, 2, 3, OUTER + 1]);
    assert_eq!((frames, end), (vec![INNER, TESTED + 5, OUTER + 1], Complete));
    let (frames, end) = walk_through(rule(Kind::DerefSp, 8, Unchanged), 0, &[1, STACK + 40, 3, OUTER + 1]);
    assert_eq!((frames, end), (vec![INNER, TESTED + 5, OUTER + 1], Complete));
}

#[test]
fn a_linkage_table_has_pushed_something_from_its_11th_byte_on() {
    let mut memory = Fake::default();
    memory.put_words(STACK, &[OUTER + 1, OUTER + 2]);
    let mut world = World::new(&memory);
    world.map(CODE..CODE_END, &[(0x200, rule(Kind::Plt, 8, Unchanged)), (0x300, Rule::END)]);
    let frames = |ip| world.walk(Start { ip, sp: STACK, bp: 0, thread_id: 0 }).native;
    assert_eq!(frames(TESTED + 10), [TESTED + 10, OUTER + 1]);
    assert_eq!(frames(TESTED + 11), [TESTED + 11, OUTER + 2]);
}

#[test]
fn the_frame_pointer_is_found_where_it_was_saved() {
    let by_frame_pointer = rule(Kind::Bp, 16, AtCfa(-16));
    // The tested function calls another with its own rule, in the frame that its frame pointer says.
    let ways: &[(FramePointer, u64)] =
        &[(Unchanged, STACK + 48), (AtCfa(-16), 0), (AtCfa(-24), 0), (AtBp(8), STACK + 8)];
    for &(place, bp) in ways {
        let mut memory = Fake::default();
        memory.put_words(STACK, &[0, 0, STACK + 48, STACK + 48, OUTER + 1, 7, 0, CODE + 1]);
        if place == AtCfa(-16) {
            memory.set(STACK + 16, 0);
        }
        if place == AtCfa(-24) {
            memory.set(STACK + 24, 0);
        }
        let mut world = World::new(&memory);
        let tested = rule(Kind::Sp, 40, place);
        world.map(CODE..CODE_END, &[(0, Rule::END), (0x200, tested), (0x300, by_frame_pointer)]);
        let stack = world.walk(Start { ip: TESTED, sp: STACK, bp, thread_id: 0 });
        assert_eq!((stack.native, stack.end), (vec![TESTED, OUTER + 1, CODE + 1], Complete), "{place:?}");
    }
}

#[test]
fn a_frame_pointer_that_is_unknown_is_not_believed() {
    let mut memory = Fake::default();
    memory.put_words(STACK, &[OUTER + 1, 0, CODE + 1]);
    let mut world = World::new(&memory);
    let by_frame_pointer = rule(Kind::Bp, 16, AtCfa(-16));
    world.map(CODE..CODE_END, &[(0x200, rule(Kind::Sp, 8, Unknown)), (0x300, by_frame_pointer)]);
    let stack = world.walk(Start { ip: TESTED, sp: STACK, bp: STACK + 8, thread_id: 0 });
    assert_eq!(stack.native, [TESTED, OUTER + 1]);
    assert_eq!(stack.end, gpuwhy_model::WalkEnd::NoProgress);
}

#[test]
fn an_interrupted_function_is_left_at_its_own_instruction() {
    let mut memory = Fake::default();
    let mut frame = [0; 32];
    (frame[15], frame[20], frame[21]) = (STACK + 0x1000, STACK + 0x1000, OUTER);
    memory.put_words(STACK, &frame);
    memory.put_words(STACK + 0x1000, &[0, CODE + 0x10]);
    let mut world = World::new(&memory);
    let by_frame_pointer = rule(Kind::Bp, 16, AtCfa(-16));
    world.map(CODE..CODE_END, &[(0x1, Rule::END), (0x200, Rule::SIGNAL), (0x300, by_frame_pointer)]);
    let stack = world.walk(Start { ip: TESTED, sp: STACK, bp: 0, thread_id: 0 });
    assert_eq!((stack.native, stack.end), (vec![TESTED, OUTER, CODE + 0x10], Complete));
}

#[test]
fn what_a_return_probe_has_replaced_is_put_back() {
    const TRAMPOLINE: u64 = 0x7fff_ffff_e000;
    let mut memory = Fake::default();
    memory.put_words(STACK, &[TRAMPOLINE, TRAMPOLINE]);
    let mut world = World::new(&memory);
    world.map(CODE..CODE_END, &[(0x100, rule(Kind::Sp, 8, Unchanged)), (0x300, Rule::END)]);
    world.hidden = vec![(STACK, TESTED), (STACK + 8, OUTER + 1)];
    let from = Start { ip: INNER, sp: STACK, bp: 0, thread_id: 0 };
    let stack = world.walk(from);
    assert_eq!((stack.native, stack.end), (vec![INNER, TESTED, OUTER + 1], Complete));
    world.hidden.clear();
    let stack = world.walk(from);
    assert_eq!((stack.native, stack.end), (vec![INNER, TRAMPOLINE], NoMapping));
}

#[test]
fn where_frame_pointers_are_trusted_rows_are_for_the_innermost_and_the_outermost_frame() {
    let mut memory = Fake::default();
    memory.put_words(STACK, &[TESTED + 5, STACK + 24, TESTED + 7, 0, OUTER + 1]);
    let mut world = World::new(&memory);
    let mapping = world.map(CODE..CODE_END, &[(0x100, rule(Kind::Sp, 8, Unchanged)), (0x300, Rule::END)]);
    mapping.flags = types::mapping_flags::MAPPING_FRAME_POINTERS.0;
    let stack = world.walk(Start { ip: INNER, sp: STACK, bp: STACK + 8, thread_id: 0 });
    assert_eq!((stack.native, stack.end), (vec![INNER, TESTED + 5, TESTED + 7, OUTER + 1], Complete));
}
