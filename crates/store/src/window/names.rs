//! Who and what the records speak of, and what the sessions say about themselves.

use gpuwhy_model::{
    CallClass, Layer, LifeKind, ModuleId, Note, NoteKind, OpId, Process, ProcessId, ProcessLife, TargetId, TargetKind,
    ThreadId, WaitTarget,
};

use super::source::{Source, id, signed, unsigned, word};
use super::{Op, SessionFacts, Thread, Window};
use crate::older;

/// The most turns in lives that are kept.
const MOST_LIFE: i64 = 10_000;

/// The most notes that are kept.
const MOST_NOTES: i64 = 100;

pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    sessions(source, window)?;
    processes(source, window)?;
    threads(source, window)?;
    ops(source, window)?;
    modules(source, window)?;
    targets(source, window)?;
    life(source, window)
}

fn sessions(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let sql = "SELECT id, started_ns, ended_ns, command, seen, stored FROM sessions
        WHERE started_ns < ? AND coalesce(ended_ns, last_commit_ns) >= ? ORDER BY id";
    let mut ids = Vec::new();
    source.each(sql, [signed(window.to_ns), signed(window.from_ns)], |row| {
        ids.push(row.get::<_, i64>(0)?);
        window.sessions.push(SessionFacts {
            started_ns: unsigned(row, 1)?,
            ended_ns: row.get::<_, Option<i64>>(2)?.and_then(|ns| u64::try_from(ns).ok()),
            command: row.get(3)?,
            seen: row.get::<_, Option<i64>>(4)?.and_then(|seen| u64::try_from(seen).ok()),
            stored: unsigned(row, 5)?,
            ..SessionFacts::default()
        });
        Ok(())
    })?;
    for (session, facts) in ids.into_iter().zip(&mut window.sessions) {
        source.each("SELECT reason, count FROM losses WHERE session_id = ?", [session], |row| {
            facts.losses.insert(row.get(0)?, unsigned(row, 1)?);
            Ok(())
        })?;
        let kind = source.column_or("warnings", "kind", older::NOTE_KIND);
        let sql = format!("SELECT {kind}, text FROM warnings WHERE session_id = ? ORDER BY at_ns LIMIT ?");
        source.each(&sql, [session, MOST_NOTES], |row| {
            let kind = NoteKind::from_word(row.get_ref(0)?.as_str()?);
            facts.notes.push(Note { kind, text: row.get(1)? });
            Ok(())
        })?;
    }
    Ok(())
}

fn processes(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let quota = source.column_or("processes", "cpu_quota", "NULL");
    let limit = source.column_or("processes", "memory_limit", "NULL");
    let sql = format!(
        "SELECT id, pid, parent_pid, started_ns, uid, comm, exe, cmdline, cgroup_id, cgroup, container_id, {quota},
           {limit} FROM processes"
    );
    source.each(&sql, [], |row| {
        let Some(process) = id(row, 0)? else { return Ok(()) };
        let facts = Process {
            pid: id(row, 1)?.unwrap_or(0),
            parent_pid: id(row, 2)?.unwrap_or(0),
            started_ns: unsigned(row, 3)?,
            uid: id(row, 4)?.unwrap_or(0),
            comm: row.get(5)?,
            exe: row.get(6)?,
            cmdline: row.get(7)?,
            cgroup_id: row.get::<_, i64>(8)?.cast_unsigned(),
            cgroup: row.get(9)?,
            container_id: row.get(10)?,
            cpu_quota: row.get(11)?,
            memory_limit: row.get::<_, Option<i64>>(12)?.and_then(|limit| u64::try_from(limit).ok()),
        };
        window.processes.insert(ProcessId(process), facts);
        Ok(())
    })
}

fn threads(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    source.each("SELECT id, process_id, tid, comm FROM threads", [], |row| {
        if let (Some(thread), Some(process)) = (id(row, 0)?, id(row, 1)?) {
            let facts = Thread { process: ProcessId(process), tid: id(row, 2)?.unwrap_or(0), comm: row.get(3)? };
            window.threads.insert(ThreadId(thread), facts);
        }
        Ok(())
    })
}

fn ops(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    source.each("SELECT id, name, layer, class FROM ops", [], |row| {
        let layer = word(row, 2, Layer::ALL, Layer::as_str)?;
        let class = word(row, 3, CallClass::ALL, CallClass::as_str)?;
        if let (Some(op), Some(layer), Some(class)) = (id(row, 0)?, layer, class) {
            window.ops.insert(OpId(op), Op { name: row.get(1)?, layer, class });
        }
        Ok(())
    })
}

fn modules(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    source.each("SELECT id, path FROM modules", [], |row| {
        if let Some(module) = id(row, 0)? {
            window.modules.insert(ModuleId(module), row.get(1)?);
        }
        Ok(())
    })
}

fn targets(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    if !source.has("wait_targets", "id") {
        return Ok(());
    }
    source.each("SELECT id, process_id, kind, name FROM wait_targets", [], |row| {
        if let (Some(target), Some(process)) = (id(row, 0)?, id(row, 1)?) {
            let kind = word(row, 2, TargetKind::ALL, TargetKind::as_str)?.unwrap_or(TargetKind::Other);
            let facts = WaitTarget { process: ProcessId(process), kind, name: row.get(3)? };
            window.targets.insert(TargetId(target), facts);
        }
        Ok(())
    })
}

/// A busy machine starts thousands of processes a second, so forks are read only for those that were killed.
fn life(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let sql = "SELECT at_ns, kind, pid, child_pid, status, comm FROM process_life
        WHERE at_ns >= ?1 AND at_ns < ?2 AND (kind = 'oom_kill' OR kind = 'exit' AND pid IN (SELECT pid FROM processes)
          OR kind = 'fork' AND child_pid IN (SELECT pid FROM process_life WHERE kind = 'oom_kill'))
        ORDER BY at_ns LIMIT ?3";
    source.each(sql, [signed(window.from_ns), signed(window.to_ns), MOST_LIFE], |row| {
        let Some(kind) = word(row, 1, LifeKind::ALL, LifeKind::as_str)? else { return Ok(()) };
        window.life.push(ProcessLife {
            at_ns: unsigned(row, 0)?,
            kind,
            pid: id(row, 2)?.unwrap_or(0),
            child_pid: id(row, 3)?,
            status: row.get(4)?,
            comm: row.get(5)?,
        });
        Ok(())
    })
}
