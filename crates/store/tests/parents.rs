//! Two calls cannot start at the same nanosecond in the file; those made inside a moved call still know it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::HashMap;

use gpuwhy_model::{Call, ThreadId};
use proptest::prelude::*;
use support::*;

fn starts(path: &std::path::Path) -> Vec<String> {
    lines(path, "SELECT id - 1790000000000000000, tid, id - parent_id FROM cuda_events ORDER BY id")
}

#[test]
fn calls_that_start_together_are_all_kept() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    for _ in 0..3 {
        writer.calls(&mut vec![cast.call(5); 1000]).unwrap();
        writer.commit(START_NS).unwrap();
    }
    writer.finish(&end()).unwrap();
    assert_eq!(number(&path, "SELECT COUNT(*) FROM cuda_events"), 3000);
    assert_eq!(number(&path, "SELECT MAX(id) - MIN(id) FROM cuda_events"), 2999);
}

#[test]
fn a_child_stored_before_its_parent_follows_when_the_parent_moves() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let child = Call { parent_start_ns: Some(START_NS), ..cast.call(100) };
    // Of another thread, with a call at the same time: its parent does not move.
    let stranger = Call { thread: cast.other_thread, ..child.clone() };
    let occupied = Call { thread: cast.other_thread, ..cast.call(0) };
    writer.calls(&mut [child, Call { start_ns: START_NS + 200, ..stranger }, occupied]).unwrap();
    writer.commit(START_NS).unwrap();
    writer.calls(&mut [cast.call(0)]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(starts(&path), ["0 101 null", "1 100 null", "100 100 99", "200 101 200"]);
}

#[test]
fn a_child_stored_with_or_after_its_moved_parent_follows() {
    let (_directory, path) = temporary();
    let mut writer = writer(&path);
    let cast = Cast::new(&mut writer);
    let child = |offset| Call { parent_start_ns: Some(START_NS), ..cast.call(offset) };
    writer.calls(&mut [Call { thread: cast.other_thread, ..cast.call(0) }]).unwrap();
    writer.calls(&mut [child(100), cast.call(0)]).unwrap();
    writer.commit(START_NS).unwrap();
    writer.calls(&mut [child(200)]).unwrap();
    writer.finish(&end()).unwrap();
    assert_eq!(starts(&path), ["0 101 null", "1 100 null", "100 100 99", "200 100 199"]);
}

/// Calls of two threads at crowded times, each with one call inside, in any order and any batches.
fn crowded() -> impl Strategy<Value = Vec<(bool, u64, u64, bool)>> {
    proptest::collection::vec((any::<bool>(), 0..30u64, 1..40u64, any::<bool>()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_child_finds_its_parent_whatever_the_order(pairs in crowded(), order in any::<u64>()) {
        let (_directory, path) = temporary();
        let mut writer = writer(&path);
        let cast = Cast::new(&mut writer);
        // Each pair is told apart by its bytes; one thread never starts two calls at once.
        let mut next_free: HashMap<ThreadId, u64> = HashMap::new();
        let mut calls = Vec::new();
        for (at, &(is_other, gap, inside, has_child)) in pairs.iter().enumerate() {
            let thread = if is_other { cast.other_thread } else { cast.thread };
            let start = next_free.get(&thread).copied().unwrap_or(0) + gap;
            next_free.insert(thread, start + 100);
            calls.push(Call { thread, duration_ns: 90, bytes: Some(at as u64), ..cast.call(start) });
            if has_child {
                let child = Call { thread, duration_ns: 1, bytes: Some(at as u64), ..cast.call(start + inside) };
                calls.push(Call { parent_start_ns: Some(START_NS + start), ..child });
            }
        }
        calls.sort_by_key(|call| (call.start_ns ^ order).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (stored, children) = (calls.len(), pairs.iter().filter(|pair| pair.3).count());
        for batch in calls.chunks_mut(7) {
            writer.calls(batch).unwrap();
        }
        writer.finish(&end()).unwrap();
        prop_assert_eq!(number(&path, "SELECT COUNT(*) FROM cuda_events"), stored as i64);
        let found = "SELECT COUNT(*) FROM cuda_events c JOIN cuda_events p ON p.id = c.parent_id
            WHERE p.bytes = c.bytes AND p.tid = c.tid AND p.id <> c.id";
        prop_assert_eq!(number(&path, found), children as i64);
    }
}
