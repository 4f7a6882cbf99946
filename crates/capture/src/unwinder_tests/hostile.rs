//! Stacks, tables and mappings that want to mislead the walker: every walk ends in time, with the right reason.

use gpuwhy_model::WalkEnd;
use gpuwhy_stacks::table::FramePointer::{AtBp, AtCfa, Unchanged};
use gpuwhy_stacks::table::{Kind, Rule};

use super::fake::Fake;
use super::rules::{CODE, CODE_END, STACK, rule};
use super::{FIRST_ROW, MAX_NATIVE_FRAMES, RawStack, SHARD_ROWS, Start, World, types};

/// Where a call in the code returns to.
const RETURN: u64 = CODE + 0x105;
const FROM: Start = Start { ip: CODE + 0x50, sp: STACK, bp: STACK, thread_id: 0 };

/// Code whose only call ends at `RETURN`, and a stack of these words.
fn memory(stack: &[u64]) -> Fake {
    let mut memory = Fake::default();
    let mut code = vec![0x90; (CODE_END - CODE) as usize];
    code[0x100] = 0xe8;
    memory.put(CODE, &code);
    memory.put_words(STACK, stack);
    memory
}

fn by_frame_pointers(memory: &Fake) -> RawStack {
    let mut world = World::new(memory);
    world.map_without_table(CODE..CODE_END);
    world.walk(FROM)
}

/// All code has the rule.
fn by_rule(memory: &Fake, rule: Rule) -> RawStack {
    let mut world = World::new(memory);
    world.map(CODE..CODE_END, &[(0, rule)]);
    world.walk(FROM)
}

#[track_caller]
fn check(stack: &RawStack, frames: usize, end: WalkEnd) {
    assert_eq!((stack.native.len(), stack.end), (frames, end));
}

fn keeps_frame_pointer() -> Rule {
    rule(Kind::Bp, 16, AtCfa(-16))
}

#[test]
fn frame_pointers_that_lead_in_a_circle_are_followed_once() {
    let circle = memory(&[STACK + 16, RETURN, STACK, RETURN]);
    check(&by_frame_pointers(&circle), 3, WalkEnd::NoFramePointer);
    check(&by_rule(&circle, keeps_frame_pointer()), 3, WalkEnd::NoProgress);
}

#[test]
fn a_frame_pointer_that_points_at_itself_or_backwards_ends_the_walk() {
    for next in [STACK, STACK - 16, 8, 0, u64::MAX, u64::MAX - 7, u64::MAX - 15] {
        let stack = memory(&[next, RETURN]);
        check(&by_frame_pointers(&stack), 2, WalkEnd::NoFramePointer);
        let by_rule = by_rule(&stack, keeps_frame_pointer());
        assert_eq!(by_rule.native.len(), 2);
        assert!(matches!(by_rule.end, WalkEnd::NoProgress | WalkEnd::Unreadable), "{:?}", by_rule.end);
    }
}

#[test]
fn a_frame_of_which_half_can_be_read_is_none() {
    let half = memory(&[STACK + 16]);
    check(&by_frame_pointers(&half), 1, WalkEnd::NoFramePointer);
    check(&by_rule(&half, keeps_frame_pointer()), 1, WalkEnd::Unreadable);
    check(&by_rule(&half, rule(Kind::Sp, 16, AtCfa(-24))), 1, WalkEnd::Unreadable);
    check(&by_rule(&half, rule(Kind::Sp, 16, AtBp(8))), 1, WalkEnd::Unreadable);
    check(&by_rule(&memory(&[1, 2]), rule(Kind::Sp, 24, AtCfa(-16))), 1, WalkEnd::Unreadable);
}

#[test]
fn a_recursion_of_ten_thousand_frames_is_cut() {
    let frames: Vec<u64> = (0..10_000).flat_map(|frame| [STACK + 16 * (frame + 1), RETURN]).collect();
    let deep = memory(&frames);
    check(&by_frame_pointers(&deep), MAX_NATIVE_FRAMES, WalkEnd::TooDeep);
    check(&by_rule(&deep, keeps_frame_pointer()), MAX_NATIVE_FRAMES, WalkEnd::TooDeep);
    check(&by_rule(&deep, rule(Kind::Sp, 16, Unchanged)), MAX_NATIVE_FRAMES, WalkEnd::TooDeep);
}

#[test]
fn the_deepest_stack_that_fits_is_complete() {
    let mut frames = vec![RETURN; MAX_NATIVE_FRAMES - 2];
    frames.push(CODE + 0x801);
    let memory = memory(&frames);
    let mut world = World::new(&memory);
    world.map(CODE..CODE_END, &[(0, rule(Kind::Sp, 8, Unchanged)), (0x800, Rule::END)]);
    check(&world.walk(FROM), MAX_NATIVE_FRAMES, WalkEnd::Complete);
}

#[test]
fn a_frame_pointer_that_leads_to_no_call_is_not_a_frame() {
    for address in [CODE + 0x104, CODE + 0x106, CODE, CODE_END, 1, u64::MAX] {
        check(&by_frame_pointers(&memory(&[STACK + 16, address])), 1, WalkEnd::NoFramePointer);
    }
    let mut unreadable = memory(&[STACK + 16, RETURN]);
    unreadable.punch(RETURN - 8..RETURN);
    check(&by_frame_pointers(&unreadable), 1, WalkEnd::NoFramePointer);
}

#[test]
fn a_frame_that_returns_to_nowhere_is_the_outermost() {
    check(&by_frame_pointers(&memory(&[0, RETURN, 0, 0])), 2, WalkEnd::NoFramePointer);
    check(&by_frame_pointers(&memory(&[STACK + 16, RETURN, 0, 0])), 2, WalkEnd::FramePointers);
    check(&by_rule(&memory(&[RETURN, 0]), rule(Kind::Sp, 8, Unchanged)), 2, WalkEnd::Complete);
}

#[test]
fn a_stack_that_cannot_be_read_ends_the_walk() {
    let mut unmapped = memory(&[RETURN; 8]);
    unmapped.punch(STACK + 24..STACK + 4096);
    check(&by_rule(&unmapped, rule(Kind::Sp, 8, Unchanged)), 4, WalkEnd::Unreadable);
    check(&by_rule(&unmapped, rule(Kind::DerefBp, 32, Unchanged)), 1, WalkEnd::Unreadable);
    check(&by_rule(&unmapped, rule(Kind::DerefSp, 32, Unchanged)), 1, WalkEnd::Unreadable);
}

#[test]
fn offsets_that_make_no_sense_lead_nowhere() {
    let stack = memory(&[RETURN; 8]);
    for offset in [-262_144, -8, 0] {
        check(&by_rule(&stack, rule(Kind::Sp, offset, Unchanged)), 1, WalkEnd::NoProgress);
        check(&by_rule(&stack, rule(Kind::Bp, offset, Unchanged)), 1, WalkEnd::NoProgress);
    }
    check(&by_rule(&stack, rule(Kind::Sp, 262_136, Unchanged)), 1, WalkEnd::Unreadable);
    check(&by_rule(&stack, rule(Kind::Sp, 16, AtCfa(-4096))), 1, WalkEnd::Unreadable);
    check(&by_rule(&stack, rule(Kind::Sp, 16, AtBp(4088))), 1, WalkEnd::Unreadable);
}

#[test]
fn registers_at_the_ends_of_memory_do_not_wrap_around_into_frames() {
    let stack = memory(&[RETURN; 8]);
    for edge in [0, 8, u64::MAX - 7, u64::MAX - 15, i64::MIN.cast_unsigned()] {
        for (kind, offset) in [(Kind::Sp, 8), (Kind::Sp, -8), (Kind::Bp, 16), (Kind::DerefBp, 0), (Kind::DerefSp, 0)] {
            let mut world = World::new(&stack);
            world.map(CODE..CODE_END, &[(0, rule(kind, offset, Unchanged))]);
            let walked = world.walk(Start { sp: edge, bp: edge, ..FROM });
            assert!(matches!(walked.end, WalkEnd::Unreadable | WalkEnd::NoProgress), "{kind:?} {:?}", walked.end);
            assert_eq!(walked.native.len(), 1);
        }
    }
}

#[test]
fn a_stack_pointer_between_words_is_no_stack() {
    let stack = memory(&[RETURN; 8]);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0, rule(Kind::Sp, 8, Unchanged))]);
    for shift in 1..8 {
        check(&world.walk(Start { sp: STACK + shift, ..FROM }), 1, WalkEnd::NoProgress);
    }
    let mut world = World::new(&stack);
    world.map_without_table(CODE..CODE_END);
    check(&world.walk(Start { bp: STACK + 4, ..FROM }), 1, WalkEnd::NoFramePointer);
}

#[test]
fn rows_out_of_order_end_the_walk_somewhere() {
    let stack = memory(&[RETURN; 600]);
    let step = rule(Kind::Sp, 8, Unchanged);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0x900, step), (0x100, Rule::SIGNAL), (0, step), (0x700, Rule::NONE), (0x50, step)]);
    for ip in CODE..CODE_END {
        world.walk(Start { ip, ..FROM });
    }
}

#[test]
fn an_address_before_the_first_row_has_no_rule() {
    let stack = memory(&[RETURN]);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0x51, Rule::END)]);
    check(&world.walk(FROM), 1, WalkEnd::NoRule);
}

#[test]
fn mappings_that_overlap_are_each_the_last_that_begins_before_the_address() {
    let stack = memory(&[RETURN; 600]);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0, rule(Kind::Sp, 8, Unchanged))]);
    world.map(CODE..CODE + 0x200, &[(0, Rule::END)]);
    world.map(CODE + 0x80..CODE_END, &[(0, Rule::NONE)]);
    // The first that is looked at is the process's first mapping.
    world.mappings.insert(0, types::code_mapping::default());
    check(&world.walk(FROM), 1, WalkEnd::Complete);
    check(&world.walk(Start { ip: CODE + 0x300, ..FROM }), 1, WalkEnd::NoRule);
}

#[test]
fn a_table_without_rows_is_none_whatever_else_it_says() {
    let stack = memory(&[STACK + 16, RETURN]);
    let mut world = World::new(&stack);
    let mapping = world.map(CODE..CODE_END, &[]);
    mapping.flags = u32::MAX;
    check(&world.walk(FROM), 2, WalkEnd::NoFramePointer);
}

#[test]
fn rows_that_are_not_there_say_nothing() {
    let stack = memory(&[RETURN; 8]);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0, Rule::END)]).shard = 1;
    check(&world.walk(FROM), 1, WalkEnd::NoRule);
    world.mappings[0].shard = u32::MAX;
    check(&world.walk(FROM), 1, WalkEnd::NoRule);
    for (first_row, rows) in [(FIRST_ROW, u32::MAX), (u32::MAX, 2), (SHARD_ROWS as u32 - 1, 70_000), (1 << 31, 1 << 31)]
    {
        world.mappings[0] = types::code_mapping { shard: 0, first_row, rows, ..world.mappings[0] };
        world.walk(FROM);
    }
}

#[test]
fn code_outside_of_all_mappings_is_the_last_frame() {
    let stack = memory(&[0x1234]);
    check(&by_rule(&stack, rule(Kind::Sp, 8, Unchanged)), 2, WalkEnd::NoMapping);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0, Rule::END)]);
    for ip in [1, CODE - 1, CODE_END, u64::MAX] {
        check(&world.walk(Start { ip, ..FROM }), 1, WalkEnd::NoMapping);
    }
    check(&world.walk(Start { ip: 0, ..FROM }), 0, WalkEnd::NoMapping);
}

#[test]
fn a_process_without_mappings_does_not_use_those_of_others() {
    let stack = memory(&[RETURN]);
    check(&World::new(&stack).walk(FROM), 1, WalkEnd::NoMapping);
}

/// The registers at the interruption, as the kernel puts them on the stack.
fn signal_frame(ip: u64, sp: u64, bp: u64) -> [u64; 22] {
    let mut frame = [0; 22];
    (frame[15], frame[20], frame[21]) = (bp, sp, ip);
    frame
}

#[test]
fn a_signal_frame_may_lead_nowhere() {
    check(&by_rule(&memory(&signal_frame(0x1234, STACK, 0)), Rule::SIGNAL), 2, WalkEnd::NoMapping);
    check(&by_rule(&memory(&signal_frame(0, 0, 0)), Rule::SIGNAL), 1, WalkEnd::NoMapping);
    check(&by_rule(&memory(&signal_frame(RETURN, 0, 0)), Rule::SIGNAL), 2, WalkEnd::Unreadable);
    check(&by_rule(&memory(&[0; 21]), Rule::SIGNAL), 1, WalkEnd::Unreadable);
    let mut torn = memory(&signal_frame(RETURN, STACK, 0));
    torn.punch(STACK + 120..STACK + 128);
    check(&by_rule(&torn, Rule::SIGNAL), 1, WalkEnd::Unreadable);
}

#[test]
fn a_signal_frame_that_leads_to_itself_is_followed_up_to_the_limit() {
    check(&by_rule(&memory(&signal_frame(RETURN, STACK, 0)), Rule::SIGNAL), MAX_NATIVE_FRAMES, WalkEnd::TooDeep);
}

#[test]
fn hidden_returns_that_lead_to_each_other_end_with_the_stack() {
    const TRAMPOLINE: u64 = 0x7fff_ffff_e000;
    for (depth, frames, end) in [(8, 9, WalkEnd::Unreadable), (600, MAX_NATIVE_FRAMES, WalkEnd::TooDeep)] {
        let stack = memory(&vec![TRAMPOLINE; depth]);
        let mut world = World::new(&stack);
        world.map(CODE..CODE_END, &[(0, rule(Kind::Sp, 8, Unchanged))]);
        world.hidden = (0..depth as u64).map(|slot| (STACK + 8 * slot, RETURN - slot % 2)).collect();
        check(&world.walk(FROM), frames, end);
    }
}

#[test]
fn a_hidden_return_to_code_that_is_not_known_is_the_last_frame() {
    let stack = memory(&[0x9999]);
    let mut world = World::new(&stack);
    world.map(CODE..CODE_END, &[(0, rule(Kind::Sp, 8, Unchanged))]);
    world.hidden = vec![(STACK, 0x1234)];
    let stack = world.walk(FROM);
    assert_eq!((stack.native[1], stack.end), (0x1234, WalkEnd::NoMapping));
}
