//! Walks over anything at all: none runs over its bounds, and every way to end is met.

use std::cell::RefCell;
use std::collections::BTreeMap;

use gpuwhy_model::WalkEnd;
use gpuwhy_stacks::table::{FramePointer, Kind, Rule};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::fake::Fake;
use super::rules::{CODE, CODE_END, STACK};
use super::{FIRST_ROW, Start, World, types};

const CASES: u32 = 6000;
const STACK_WORDS: u64 = 400;
/// All code is the same piece over and over.
const CODE_PATTERN: usize = 64;

/// Everything that a walk is given.
#[derive(Clone, Debug)]
struct Case {
    start: Start,
    stack: Vec<u64>,
    code: Vec<u8>,
    mappings: Vec<types::code_mapping>,
    rows: Vec<(u32, u32)>,
    hidden: Vec<(u64, u64)>,
    hole: u64,
}

fn on_stack() -> impl Strategy<Value = u64> {
    (0..STACK_WORDS).prop_map(|word| STACK + 8 * word)
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => on_stack(),
        12 => CODE..CODE_END,
        1 => STACK..STACK + 8 * STACK_WORDS,
        1 => Just(0),
        1 => any::<u64>(),
    ]
}

fn fixed(word: BoxedStrategy<u64>) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(word, STACK_WORDS as usize)
}

fn rule() -> impl Strategy<Value = u32> {
    let kind = prop::sample::select(&[Kind::Sp, Kind::Bp, Kind::Plt, Kind::DerefBp, Kind::DerefSp, Kind::Signal]);
    let frame_pointer = prop_oneof![
        Just(FramePointer::Unchanged),
        Just(FramePointer::Unknown),
        (-6..2i64).prop_map(|words| FramePointer::AtCfa(8 * words)),
        (-2..3i64).prop_map(|words| FramePointer::AtBp(8 * words)),
    ];
    let sensible = (kind, -1..6i64, frame_pointer).prop_map(|(kind, words, frame_pointer)| {
        Rule::new(kind, 8 * words, frame_pointer).map_or(0, |rule| rule.bits())
    });
    // Most functions have a frame of some words, and stacks are deep where nothing else happens.
    let usual = (1..3i64).prop_map(|words| Rule::new(Kind::Sp, 8 * words, FramePointer::Unchanged).unwrap().bits());
    prop_oneof![20 => usual, 6 => sensible, 1 => Just(Rule::END.bits()), 1 => any::<u32>()]
}

fn mapping() -> impl Strategy<Value = types::code_mapping> {
    let start = prop_oneof![Just(CODE), CODE..CODE_END];
    let bytes = prop_oneof![1..0x400u64, Just(CODE_END - CODE)];
    let rows = prop_oneof![6 => 1..60u32, 2 => Just(0), 1 => any::<u32>()];
    let first_row = prop_oneof![6 => Just(FIRST_ROW), 1 => any::<u32>()];
    let shard = prop_oneof![8 => Just(0), 1 => any::<u32>()];
    let bias = prop_oneof![6 => Just(CODE), 1 => any::<u64>()];
    (start, bytes, rows, first_row, shard, bias, 0..2u32).prop_map(
        |(start, bytes, rows, first_row, shard, bias, flags)| types::code_mapping {
            start,
            end: start + bytes,
            bias,
            shard,
            first_row,
            rows,
            flags,
        },
    )
}

/// All code, with all rows.
fn covering(rows: usize) -> types::code_mapping {
    let (start, end) = (CODE, CODE_END);
    types::code_mapping { start, end, bias: CODE, shard: 0, first_row: FIRST_ROW, rows: rows as u32, flags: 0 }
}

fn case() -> impl Strategy<Value = Case> {
    let ip = prop_oneof![1 => word(), 4 => CODE..CODE_END];
    let start = (ip, on_stack(), word()).prop_map(|(ip, sp, bp)| Start { ip, sp, bp, thread_id: 0 });
    let stack = prop_oneof![fixed(word().boxed()), fixed((CODE..CODE_END).boxed())];
    let code_byte = prop_oneof![3 => Just(0xe8), 1 => any::<u8>()];
    let row = || (prop_oneof![Just(0), 0..0x1000u32], rule());
    let rows = prop_oneof![prop::collection::vec(row(), 1..3), prop::collection::vec(row(), 1..60)];
    (
        (start, stack),
        prop::collection::vec(code_byte, CODE_PATTERN),
        (prop::collection::vec(mapping(), 0..4), rows, any::<[bool; 3]>()),
        prop::collection::vec((on_stack(), word()), 0..4),
        on_stack(),
    )
        .prop_map(|((start, stack), code, (mut mappings, mut rows, in_order), hidden, hole)| {
            if in_order[0] {
                mappings.sort_by_key(|mapping| mapping.start);
            }
            if in_order[1] {
                rows.sort_by_key(|row| row.0);
            }
            // Otherwise hardly any walk leaves the first frame.
            if in_order[2] {
                mappings.truncate(1);
                mappings.iter_mut().for_each(|mapping| *mapping = covering(rows.len()));
            }
            Case { start, stack, code, mappings, rows, hidden, hole }
        })
}

fn walk(case: &Case) -> WalkEnd {
    let mut memory = Fake::default();
    memory.put_words(STACK, &case.stack);
    memory.put(CODE, &case.code.repeat((CODE_END - CODE) as usize / CODE_PATTERN));
    memory.punch(case.hole..case.hole + 8);
    let mut world = World::new(&memory);
    world.map_raw(0..0, &case.rows);
    world.mappings.clone_from(&case.mappings);
    world.hidden.clone_from(&case.hidden);
    let stack = world.walk(case.start);
    assert!(stack.native.iter().all(|address| *address != 0), "{stack:x?}");
    stack.end
}

#[test]
fn any_walk_ends_and_says_how() {
    let ends = RefCell::new(BTreeMap::<WalkEnd, u32>::new());
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) });
    let outcome = runner.run(&case(), |case| {
        *ends.borrow_mut().entry(walk(&case)).or_default() += 1;
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let ends = ends.into_inner();
    // Random frame pointers hardly ever lead to the outermost frame.
    let is_rare = |end: &&WalkEnd| matches!(end, WalkEnd::NoProcess | WalkEnd::NotWalked | WalkEnd::FramePointers);
    for end in WalkEnd::ALL.iter().filter(|end| !is_rare(end)) {
        assert!(ends.contains_key(end), "no walk ended as {end:?}: {ends:?}");
    }
    assert_eq!(ends.values().sum::<u32>(), CASES);
}
