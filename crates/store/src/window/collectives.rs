//! Collective operations, with which rank asked for them, and communicators that have ended.

use gpuwhy_model::{OpId, ProcessId, Span, ThreadId, order_of_launches};
use gpuwhy_window::{Collective, CommunicatorEnd, Window};
use rusqlite::Row;

use super::source::{Source, bits, unsigned};

/// The most that are kept in memory, about 50 bytes each.
const MOST: usize = 200_000;

/// Those whose communicator, rank and place are known.
const ASKED: &str = "
    SELECT nccl_operands.start_ns, shapes.thread_id, shapes.op_id, nccl_operands.comm_id_hash,
      coalesce(nccl_operands.rank, split_ranks.rank), coalesce(nccl_operands.nranks, split_ranks.nranks), nccl_operands.seq,
      coalesce(calls.bytes, 0), nccl_operands.peer IS NOT NULL, NULL, ";

const FROM: &str = "
    FROM nccl_operands
    CROSS JOIN calls ON calls.start_ns = nccl_operands.start_ns
    CROSS JOIN shapes ON shapes.id = calls.shape_id
    CROSS JOIN threads ON threads.id = shapes.thread_id
    LEFT JOIN split_ranks ON split_ranks.comm_id_hash = nccl_operands.comm_id_hash AND split_ranks.is_complete
      AND split_ranks.process_id = threads.process_id AND split_ranks.handle = shapes.handle";

const WHERE: &str = "
    WHERE nccl_operands.start_ns >= ?1 AND nccl_operands.start_ns < ?2
      AND nccl_operands.seq IS NOT NULL AND nccl_operands.comm_id_hash IS NOT NULL AND nccl_operands.child_id_hash IS NULL";

/// Those that launches of graphs ask for, in files that know. What is recorded in a graph is not asked for by that.
const REPLAYS: &str = "
      AND NOT EXISTS (SELECT 1 FROM collective_captures WHERE collective_captures.start_ns = nccl_operands.start_ns)
    UNION ALL
    SELECT collective_replays.start_ns, shapes.thread_id, shapes.op_id, collective_replays.comm_id_hash,
      coalesce(collective_replays.rank, split_ranks.rank), coalesce(collective_replays.nranks, split_ranks.nranks),
      collective_replays.seq, collective_replays.bytes, 0, collective_replays.replay,
      collective_waits.done_ns, coalesce(collective_waits.wait_ns, 0)
    FROM collective_replays
    CROSS JOIN calls ON calls.start_ns = collective_replays.start_ns
    CROSS JOIN shapes ON shapes.id = calls.shape_id
    CROSS JOIN threads ON threads.id = shapes.thread_id
    LEFT JOIN split_ranks ON split_ranks.comm_id_hash = collective_replays.comm_id_hash AND split_ranks.is_complete
      AND split_ranks.process_id = threads.process_id AND split_ranks.handle = collective_replays.handle
    LEFT JOIN collective_waits ON collective_waits.start_ns = collective_replays.start_ns
    WHERE collective_replays.start_ns >= ?1 AND collective_replays.start_ns < ?2";

const ENDS: &str = "
    SELECT nccl_operands.start_ns, nccl_operands.comm_id_hash, threads.process_id, shapes.op_id
    FROM nccl_operands
    CROSS JOIN calls ON calls.start_ns = nccl_operands.start_ns
    CROSS JOIN shapes ON shapes.id = calls.shape_id
    CROSS JOIN threads ON threads.id = shapes.thread_id
    WHERE nccl_operands.start_ns >= ?1 AND nccl_operands.start_ns < ?2
      AND nccl_operands.op = 'COMM_END' AND nccl_operands.comm_id_hash IS NOT NULL
    ORDER BY 1 LIMIT ?3";

const IN_ORDER: &str = "ORDER BY 1 LIMIT ?3";

/// When it was done, in files that know.
const DONE: [&str; 2] = [
    "collective_waits.done_ns, coalesce(collective_waits.wait_ns, 0)",
    "LEFT JOIN collective_waits ON collective_waits.start_ns = nccl_operands.start_ns",
];

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if source.has("nccl_operands", "seq") {
        let span = Span { from_ns: window.from_ns, to_ns: window.to_ns };
        let [done, join] = if source.has("collective_waits", "done_ns") { DONE } else { ["NULL, 0", ""] };
        let replays = if source.has("collective_replays", "seq") { REPLAYS } else { "" };
        let sql = [ASKED, done, FROM, join, WHERE, replays, IN_ORDER].join(" ");
        window.collectives = source.covered(&sql, span, MOST, collective)?;
        load_ends(source, span, window)?;
    }
    Ok(())
}

/// What was in flight when a communicator ended was not done by that: a wait that returns then says nothing about it.
fn load_ends(source: &Source<'_>, span: Span, window: &mut Window) -> rusqlite::Result<()> {
    source.each(ENDS, [span.from_ns.cast_signed(), span.to_ns.cast_signed(), MOST as i64], |row| {
        let end = CommunicatorEnd { at_ns: unsigned(row, 0)?, op: OpId(row.get(3)?) };
        window.ended_communicators.insert((row.get(1)?, ProcessId(row.get(2)?)), end);
        Ok(())
    })?;
    let Window { threads, ended_communicators: ended, collectives, .. } = window;
    for one in &mut collectives.rows {
        let end = threads.get(&one.thread).and_then(|thread| ended.get(&(one.communicator_id, thread.process)));
        if end.is_some_and(|end| one.done_ns.is_some_and(|done_ns| done_ns >= end.at_ns)) {
            one.done_ns = None;
        }
    }
    Ok(())
}

fn collective(row: &Row<'_>) -> rusqlite::Result<Option<Collective>> {
    let (Some(rank), Some(ranks)) = (row.get(4)?, row.get(5)?) else { return Ok(None) };
    let (communicator_id, sequence): (i64, u64) = (row.get(3)?, unsigned(row, 6)?);
    let replay: Option<i64> = row.get(9)?;
    let (communicator, sequence) = match replay {
        Some(replay) => {
            (order_of_launches(communicator_id.cast_unsigned(), sequence).cast_signed(), replay.cast_unsigned())
        }
        None => (communicator_id, sequence),
    };
    Ok(Some(Collective {
        start_ns: unsigned(row, 0)?,
        thread: ThreadId(row.get(1)?),
        op: OpId(row.get(2)?),
        communicator,
        communicator_id,
        rank,
        ranks,
        sequence,
        bytes: unsigned(row, 7)?,
        has_root: row.get(8)?,
        done_ns: bits(row, 10)?,
        wait_ns: unsigned(row, 11)?,
    }))
}
