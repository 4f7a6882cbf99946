// SPDX-License-Identifier: Apache-2.0
//! Calls `witness` from as many situations of Rust as the argument says. The library is loaded when the program runs.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::fmt::{self, Display, Formatter};
use std::hint::black_box;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

struct Library {
    witness: extern "C-unwind" fn(c_ulong),
    start: extern "C" fn(),
    finish: extern "C" fn(),
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

type Situation = fn(u64);

const SITUATIONS: &[Situation] = &[
    in_recursion,
    in_closure,
    in_boxed_closures,
    in_dyn_trait,
    in_generics,
    in_sort,
    in_iterator,
    in_map,
    in_display,
    after_panic,
    in_drop_of_panic,
    in_panic_hook,
    in_catch,
    in_thread,
    in_scope,
    in_large_frame,
];

fn main() -> ExitCode {
    let count = env::args().nth(1).and_then(|count| count.parse::<u64>().ok()).filter(|count| *count > 0);
    let (Some(count), Some(loaded)) = (count, load()) else {
        eprintln!("usage: witness_rust COUNT, with libwitness.so on the library path");
        return ExitCode::from(2);
    };
    let library = LIBRARY.get_or_init(|| loaded);
    (library.start)();
    for sequence in 0..count {
        go_on(sequence, sequence);
    }
    (library.finish)();
    ExitCode::SUCCESS
}

/// Every number comes another way, through four kinds of calls.
#[inline(never)]
fn go_on(sequence: u64, way: u64) {
    let more = || go_on(sequence, way / 4);
    match (way, way % 4) {
        (0, _) => SITUATIONS[sequence as usize % SITUATIONS.len()](sequence),
        (_, 0) => more(),
        (_, 1) => black_box(&more as &dyn Fn())(),
        (_, 2) => (0..black_box(1)).for_each(|_| more()),
        _ => keep_and_go_on(sequence, way / 4),
    }
    black_box(way);
}

#[inline(never)]
fn keep_and_go_on(sequence: u64, way: u64) {
    let kept = black_box(vec![way; 3]);
    go_on(sequence, way);
    drop(kept);
}

fn load() -> Option<Library> {
    // SAFETY: the library's functions have these types, and it is never unloaded.
    unsafe {
        let library = dlopen(c"libwitness.so".as_ptr(), RTLD_NOW);
        let find = |name: &CStr| Some(dlsym(library, name.as_ptr())).filter(|found| !found.is_null());
        if library.is_null() {
            return None;
        }
        Some(Library {
            witness: std::mem::transmute::<*mut c_void, extern "C-unwind" fn(c_ulong)>(find(c"witness")?),
            start: std::mem::transmute::<*mut c_void, extern "C" fn()>(find(c"witness_start")?),
            finish: std::mem::transmute::<*mut c_void, extern "C" fn()>(find(c"witness_finish")?),
        })
    }
}

#[inline(never)]
fn witness(sequence: u64) {
    if let Some(library) = LIBRARY.get() {
        (library.witness)(sequence);
    }
    black_box(sequence);
}

fn in_recursion(sequence: u64) {
    black_box(recurse(sequence, 1 + sequence * 7 % 80));
}

#[inline(never)]
fn recurse(sequence: u64, depth: u64) -> u64 {
    if depth <= 1 {
        witness(sequence);
        return depth;
    }
    recurse(sequence, depth - 1) + black_box(depth)
}

fn in_closure(sequence: u64) {
    let inner = |more: u64| {
        witness(sequence);
        more + 1
    };
    black_box(call_it(&inner, sequence));
}

#[inline(never)]
fn call_it<F: Fn(u64) -> u64>(function: &F, value: u64) -> u64 {
    function(value) + black_box(1)
}

fn in_boxed_closures(sequence: u64) {
    let mut chain: Box<dyn Fn(u64) -> u64> = Box::new(move |depth| {
        witness(sequence);
        depth
    });
    for _ in 0..sequence % 19 {
        let inner = chain;
        chain = Box::new(move |depth| inner(depth + 1) + black_box(1));
    }
    black_box(chain(0));
}

trait Layer {
    fn forward(&self, layers: &[Box<dyn Layer>], sequence: u64) -> u64;
}

struct Linear(u64);
struct Norm {
    values: [u64; 24],
}
struct Last;

impl Layer for Linear {
    fn forward(&self, layers: &[Box<dyn Layer>], sequence: u64) -> u64 {
        layers[0].forward(&layers[1..], sequence) + black_box(self.0)
    }
}

impl Layer for Norm {
    fn forward(&self, layers: &[Box<dyn Layer>], sequence: u64) -> u64 {
        let mut copy = black_box(self.values);
        copy[3] += layers[0].forward(&layers[1..], sequence);
        black_box(copy).iter().sum()
    }
}

impl Layer for Last {
    fn forward(&self, _layers: &[Box<dyn Layer>], sequence: u64) -> u64 {
        witness(sequence);
        black_box(1)
    }
}

fn in_dyn_trait(sequence: u64) {
    let mut layers: Vec<Box<dyn Layer>> = Vec::new();
    for index in 0..=sequence % 21 {
        let is_norm = (sequence >> (index % 8)) & 1 == 1;
        layers.push(if is_norm { Box::new(Norm { values: [index; 24] }) } else { Box::new(Linear(index)) });
    }
    layers.push(Box::new(Last));
    black_box(layers[0].forward(&layers[1..], sequence));
}

trait Nested {
    fn dive(self, sequence: u64) -> u64;
}

impl Nested for u64 {
    #[inline(never)]
    fn dive(self, sequence: u64) -> u64 {
        witness(sequence);
        black_box(self)
    }
}

impl<T: Nested, U: Display> Nested for (T, U) {
    #[inline(never)]
    fn dive(self, sequence: u64) -> u64 {
        self.0.dive(sequence) + black_box(1)
    }
}

fn in_generics(sequence: u64) {
    match sequence % 3 {
        0 => black_box((((1, "a"), 'b'), 3.5).dive(sequence)),
        1 => black_box(((1, 2_u8), 3_i64).dive(sequence)),
        _ => black_box((1, String::from("c")).dive(sequence)),
    };
}

fn in_sort(sequence: u64) {
    let is_reported = Cell::new(false);
    let mut numbers: Vec<u64> = (0..2 + sequence % 60).map(|index| index * 7919 % 1000).collect();
    numbers.sort_by(|left, right| {
        if !is_reported.replace(true) {
            witness(sequence);
        }
        left.cmp(right)
    });
    black_box(numbers);
}

fn in_iterator(sequence: u64) {
    let chosen = black_box(sequence % 9);
    let found = (0..10).filter(|index| *index == chosen).map(|index| {
        witness(sequence);
        index
    });
    black_box(found.sum::<u64>());
}

fn in_map(sequence: u64) {
    let mut map = BTreeMap::from([(1, 2), (3, 4)]);
    map.entry(black_box(5)).or_insert_with(|| {
        witness(sequence);
        6
    });
    black_box(map);
}

struct Shown(u64);

impl Display for Shown {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        witness(self.0);
        write!(formatter, "{}", self.0)
    }
}

fn in_display(sequence: u64) {
    black_box(format!("{:>10} and {}", "text", Shown(sequence)));
}

#[inline(never)]
fn panic_deep_down(depth: u64) -> u64 {
    if depth == 0 {
        panic::resume_unwind(Box::new("deep down"));
    }
    panic_deep_down(depth - 1) + black_box(1)
}

fn after_panic(sequence: u64) {
    let result = panic::catch_unwind(|| panic_deep_down(sequence % 13));
    witness(sequence);
    black_box(result.is_err());
}

struct Reporter(u64);

impl Drop for Reporter {
    fn drop(&mut self) {
        witness(self.0);
    }
}

#[inline(never)]
fn panic_past_reporter(sequence: u64) -> u64 {
    let _reporter = Reporter(sequence);
    panic_deep_down(sequence % 5)
}

/// The unwinder itself is under way.
fn in_drop_of_panic(sequence: u64) {
    let result = panic::catch_unwind(|| panic_past_reporter(sequence));
    black_box(result.is_err());
}

#[inline(never)]
fn index_out_of_bounds(depth: usize) -> usize {
    if depth == 0 {
        return [1, 2, 3][black_box(7)];
    }
    index_out_of_bounds(depth - 1) + black_box(1)
}

fn in_panic_hook(sequence: u64) {
    panic::set_hook(Box::new(move |_| witness(sequence)));
    let result = panic::catch_unwind(|| index_out_of_bounds(sequence as usize % 11));
    black_box(result.is_err());
    drop(panic::take_hook());
}

fn in_catch(sequence: u64) {
    let mut local = 0;
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        local += 1;
        witness(sequence);
    }));
    black_box((result.is_ok(), local));
}

fn in_thread(sequence: u64) {
    let builder = thread::Builder::new().name("worker".to_owned());
    let joined = builder.spawn(move || in_recursion(sequence)).map(thread::JoinHandle::join);
    black_box(joined.is_ok());
}

fn in_scope(sequence: u64) {
    let text = String::from("borrowed");
    thread::scope(|scope| {
        scope.spawn(|| {
            witness(sequence);
            black_box(text.len());
        });
    });
}

fn in_large_frame(sequence: u64) {
    let mut large = [0_u8; 40_000];
    black_box(&mut large);
    witness(sequence);
    black_box(&mut large);
}
