//! A process that wants to harm whoever reads its memory: nothing panics, loops or grows without a bound.

use gpuwhy_stacks::memory::Memory;
use gpuwhy_stacks::python::{CodeObject, Interpreter, LAYOUTS, MOST_FRAMES, Version, walk};
use proptest::prelude::*;

const BASE: u64 = 0x7f00_0000_0000;
const TYPE: u64 = BASE + 8;

/// A few hundred words, many of which point to each other, some of which are the type of everything.
#[derive(Debug)]
struct Hostile(Vec<u8>);

impl Memory for Hostile {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let start = usize::try_from(address.wrapping_sub(BASE)).unwrap_or(usize::MAX);
        let bytes = start.checked_add(into.len()).and_then(|end| self.0.get(start..end));
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

fn hostile() -> impl Strategy<Value = Hostile> {
    let word = prop_oneof![
        4 => (0u64..256).prop_map(|word| BASE + word * 8),
        2 => Just(TYPE),
        1 => Just(0),
        1 => 0u64..2000,
        1 => any::<u64>(),
    ];
    prop::collection::vec(word, 300)
        .prop_map(|words| Hostile(words.iter().flat_map(|word| word.to_le_bytes()).collect()))
}

fn interpreter(layout: usize) -> Interpreter {
    let (minor, layout) = LAYOUTS[layout];
    Interpreter {
        version: Version { minor, micro: None },
        layout,
        runtime: BASE,
        code_type: TYPE,
        unicode_type: TYPE,
        bytes_type: TYPE,
        eval: vec![],
        is_tail_calling: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn walking_ends_within_its_bounds(memory in hostile(), layout in 0..LAYOUTS.len(), id in 0u64..256) {
        let interpreter = interpreter(layout);
        for id in [BASE + id * 8, TYPE, 0] {
            prop_assert!(walk(&memory, &interpreter, id).frames.len() <= MOST_FRAMES);
        }
        let _ = interpreter.validate(&memory);
    }

    #[test]
    fn code_objects_are_read_or_refused(memory in hostile(), layout in 0..LAYOUTS.len(), at in 0u64..256, line: i32) {
        if let Ok(code) = CodeObject::read(&memory, &interpreter(layout), BASE + at * 8) {
            prop_assert!(code.qualified_name.len() <= 4096 && code.file.len() <= 4096);
            let _ = code.line(line);
        }
    }
}
