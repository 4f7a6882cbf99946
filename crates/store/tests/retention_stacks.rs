//! Stacks and frames are deleted with the last event that cites them, so that the cap holds with any number of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use gpuwhy_model::{Call, Frame, PythonEnd, Stack, StackId, StackMoment, StackWalks, Stretch, WalkEnd};
use gpuwhy_store::Writer;
use support::capped::*;
use support::*;

/// Calls and stretches that cite a stack that has no frames.
const WITHOUT_FRAMES: &str = "SELECT COUNT(*) FROM
    (SELECT stack_id FROM cuda_events UNION ALL SELECT waker_stack_id FROM sched_events)
    WHERE stack_id IS NOT NULL AND stack_id NOT IN (SELECT stack_id FROM stack_lines)";

/// A stack of twenty frames, of which three are its own.
fn stack(number: u64) -> Stack {
    let frame = |at: u64| Frame {
        function: format!("function_{at}"),
        module: Some(format!("/opt/lib{}.so", at % 3)),
        address: at,
        ..Frame::default()
    };
    let own = (0..3).map(|at| frame(1_000 + number * 3 + at));
    Stack { frames: own.chain((0..17).map(frame)).collect(), end: WalkEnd::Complete, python_end: PythonEnd::NotPython }
}

/// A hundred events in ten milliseconds, each with a stack of its own; every other one is a stretch.
fn write_events(writer: &mut Writer, cast: &Cast, batch: u64) {
    let mut stack_of = |number| {
        let id = writer.reserve_stack().unwrap();
        writer.stack(id, &stack(number)).unwrap();
        Some(id)
    };
    let numbers = |first: u64| (batch * 100 + first..(batch + 1) * 100).step_by(2);
    let call = |number: u64, stack_id| Call { stack_id, ..cast.call(number * 100_000) };
    let mut calls: Vec<Call> = numbers(0).map(|number| call(number, stack_of(number))).collect();
    let stretch = |number: u64, waker_stack| Stretch { waker_stack, ..cast.stretch(number * 100_000) };
    let stretches: Vec<Stretch> = numbers(1).map(|number| stretch(number, stack_of(number))).collect();
    writer.calls(&mut calls).unwrap();
    writer.stretches(&stretches).unwrap();
}

#[test]
fn stacks_go_with_the_events_that_cite_them() {
    for (cap, batches) in [(LEAST_CAP, 40), (CAP, 80)] {
        let (_directory, path) = temporary();
        let mut writer = capped(&path, cap);
        let cast = Cast::new(&mut writer);
        for batch in 0..batches {
            write_events(&mut writer, &cast, batch);
            writer.commit(START_NS + batch * 10_000_000).unwrap();
            assert_under(&path, cap);
        }
        assert!(writer.stack_epoch() > 3);
        writer.finish(&end()).unwrap();
        let calls = number(&path, "SELECT COUNT(*) FROM cuda_events");
        assert!(calls >= 50, "{calls} calls in {cap} bytes");
        assert_eq!(
            number(&path, "SELECT MAX(id) FROM cuda_events"),
            START_NS as i64 + (batches as i64 * 100 - 2) * 100_000
        );
        assert_eq!(number(&path, "SELECT stored FROM sessions"), calls);
        assert_eq!(number(&path, "SELECT count FROM losses WHERE reason = 'expired'"), batches as i64 * 50 - calls);
        assert_eq!(number(&path, WITHOUT_FRAMES), 0);
        let sql = "SELECT COUNT(*) FROM cuda_events AS c JOIN stack_lines AS l ON l.stack_id = c.stack_id
            AND position = 0 WHERE function = 'function_' || (1000 + (c.id - 1790000000000000000) / 100000 * 3)";
        assert_eq!(number(&path, sql), calls);
        let stacks = number(&path, "SELECT COUNT(*) FROM stacks");
        assert!(stacks < 4 * calls, "{stacks} stacks of {calls} calls and as many stretches");
        let orphans = "SELECT COUNT(*) FROM stack_frames WHERE stack_id NOT IN (SELECT id FROM stacks)
            OR frame_id NOT IN (SELECT id FROM frames)";
        assert_eq!(number(&path, orphans), 0);
        assert_eq!(integrity(&path), "ok");
    }
}

#[test]
fn a_stack_that_is_cited_after_its_epoch_stays_as_long_as_the_event() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    let old = writer.reserve_stack().unwrap();
    writer.stack(old, &stack(999_999)).unwrap();
    let (mut batch, mut kept) = (0, 0);
    while number(&path, "SELECT COUNT(*) FROM stacks WHERE id = 1") > 0 || batch == 0 {
        write_events(&mut writer, &cast, batch);
        if batch == 6 {
            assert!(writer.stack_epoch() > 0);
            // The event was under way when the epoch ended, and is the newest by far.
            let late = Stretch { waker_stack: Some(old), ..cast.stretch(12 * 10_000_000) };
            writer.stretches(&[late]).unwrap();
        }
        writer.commit(START_NS).unwrap();
        assert_eq!(number(&path, WITHOUT_FRAMES), 0, "batch {batch}");
        kept = number(&path, "SELECT COUNT(*) FROM sched_events WHERE waker_stack_id = 1");
        batch += 1;
    }
    assert!((12..60).contains(&batch), "{batch}");
    assert_eq!(kept, 0);
    writer.finish(&end()).unwrap();
}

#[test]
fn stacks_of_an_earlier_session_expire_too() {
    let (_directory, path) = temporary();
    let mut first = capped(&path, CAP);
    let cast = Cast::new(&mut first);
    write_events(&mut first, &cast, 0);
    first.finish(&end()).unwrap();
    let mut second = capped(&path, CAP);
    let cast = Cast::new(&mut second);
    for batch in 1..60 {
        write_events(&mut second, &cast, batch);
        second.commit(START_NS).unwrap();
    }
    second.finish(&end()).unwrap();
    assert!(number(&path, "SELECT MIN(id) FROM stacks") > 100);
    assert!(number(&path, "SELECT MIN(id) FROM frames") > 317);
    assert_eq!(number(&path, WITHOUT_FRAMES), 0);
}

#[test]
fn more_stacks_at_once_than_the_cap_has_room_for_stay_without_frames() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, LEAST_CAP);
    let cast = Cast::new(&mut writer);
    let names = |number: u64| {
        let frame = |at: u64| Frame { function: format!("{number}.{at}.{}", "x".repeat(2_000)), ..Frame::default() };
        Stack { frames: (0..50).map(frame).collect(), ..Stack::default() }
    };
    for batch in 0..3 {
        let stacks: Vec<StackId> = (0..100).map(|_| writer.reserve_stack().unwrap()).collect();
        let call =
            |(at, &stack): (usize, &StackId)| Call { stack_id: Some(stack), ..cast.call(batch * 100 + at as u64) };
        writer.calls(&mut stacks.iter().enumerate().map(call).collect::<Vec<_>>()).unwrap();
        for (at, &stack) in stacks.iter().enumerate() {
            writer.stack(stack, &names(batch * 100 + at as u64)).unwrap();
            assert_under(&path, LEAST_CAP);
        }
        writer.commit(START_NS).unwrap();
    }
    writer.finish(&end()).unwrap();
    assert!(number(&path, "SELECT COUNT(*) FROM stacks WHERE depth = 50") > 0);
    assert!(number(&path, "SELECT COUNT(*) FROM stacks WHERE depth IS NULL") > 0);
    assert_eq!(number(&path, "SELECT COUNT(*) FROM stacks WHERE depth IS NOT NULL AND depth <> 50"), 0);
    assert_eq!(integrity(&path), "ok");
}

#[test]
fn how_walks_ended_is_kept_longer_than_events_but_not_beyond_the_cap() {
    let (_directory, path) = temporary();
    let mut writer = capped(&path, CAP);
    let cast = Cast::new(&mut writer);
    let seconds = 600;
    for second in 0..seconds {
        let bucket_ns = START_NS + second * 1_000_000_000;
        let walks = |&end| StackWalks {
            bucket_ns,
            moment: StackMoment::Call,
            end,
            python_end: PythonEnd::NotPython,
            count: 1,
            ns: 5,
        };
        let walks: Vec<StackWalks> = WalkEnd::ALL.iter().map(walks).collect();
        writer.stack_walks(&walks).unwrap();
        let calls = (0..200).map(|at| cast.call(second * 1_000_000_000 + at * 5_000));
        writer.calls(&mut calls.collect::<Vec<_>>()).unwrap();
        writer.commit(bucket_ns).unwrap();
        assert_under(&path, CAP);
    }
    writer.finish(&end()).unwrap();
    let kept = number(&path, "SELECT COUNT(DISTINCT bucket_ns) FROM stack_stats");
    assert!((100..seconds as i64).contains(&kept), "{kept} seconds");
    let newest = number(&path, "SELECT MAX(bucket_ns) FROM stack_stats");
    assert_eq!(newest, START_NS as i64 + (seconds as i64 - 1) * 1_000_000_000);
}
