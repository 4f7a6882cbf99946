//! Who and what the records speak of, and what the sessions say about themselves.

use std::collections::BTreeMap;

use gpuwhy_model::{
    CallClass, GraphStep, Layer, Meaning, MemoryKind, ModuleId, Note, NoteKind, OpId, Process, ProcessId, ProcessLife,
    TargetId, ThreadId, WaitTarget,
};
use gpuwhy_window::{Host, Life, Op, SessionFacts, Thread, Window};
use rusqlite::Row;

use super::source::{Source, id, signed, unsigned, word};
use crate::cells::read;
use crate::schema::{NOTE_KIND, older_ops};

/// The most turns in lives that are kept.
const MOST_LIFE: i64 = 10_000;

/// The most notes that are kept.
const MOST_NOTES: i64 = 100;

/// Returns which host each session ran on.
pub(super) fn load(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<BTreeMap<i64, u16>> {
    sessions(source, window)?;
    let hosts = hosts(source, window)?;
    processes(source, &hosts, window)?;
    threads(source, window)?;
    ops(source, window)?;
    modules(source, window)?;
    targets(source, window)?;
    life(source, &hosts, window)?;
    Ok(hosts)
}

/// Which host each session ran on, by their numbers: all on one, unless the file was merged of several. A host is what was
/// booted once; two may have the same name.
fn hosts(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<BTreeMap<i64, u16>> {
    let mut of_session = BTreeMap::new();
    if !source.has("sessions", "clock_shift_ns") {
        return Ok(of_session);
    }
    let sql = "SELECT id, host, boot_id, clock_error_ns FROM sessions
        WHERE EXISTS (SELECT 1 FROM sessions WHERE clock_shift_ns IS NOT NULL) ORDER BY id";
    let mut boots: Vec<(String, Host)> = Vec::new();
    source.each(sql, [], |row| {
        let (name, boot): (String, String) = (row.get(1)?, row.get(2)?);
        let error_ns = row.get::<_, Option<i64>>(3)?.and_then(|ns| u64::try_from(ns).ok());
        let at = boots.iter().position(|(known, _)| *known == boot).unwrap_or_else(|| {
            let alike = boots.iter().filter(|(_, host)| host.name.split('#').next() == Some(name.as_str())).count();
            let name = if alike == 0 { name } else { format!("{name}#{}", alike + 1) };
            boots.push((boot, Host { name, clock_error_ns: error_ns }));
            boots.len() - 1
        });
        of_session.insert(row.get(0)?, u16::try_from(at).unwrap_or(u16::MAX));
        Ok(())
    })?;
    if boots.len() > 1 {
        window.hosts = boots.into_iter().map(|(_, host)| host).collect();
    }
    Ok(of_session)
}

fn sessions(source: &Source<'_>, window: &mut Window) -> rusqlite::Result<()> {
    let sql = "SELECT id, started_ns, ended_ns, command, seen, stored, host, boot_id FROM sessions
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
            host: row.get(6)?,
            boot_id: row.get(7)?,
            ..SessionFacts::default()
        });
        Ok(())
    })?;
    for (session, facts) in ids.into_iter().zip(&mut window.sessions) {
        source.each("SELECT reason, count FROM losses WHERE session_id = ?", [session], |row| {
            facts.losses.insert(row.get(0)?, unsigned(row, 1)?);
            Ok(())
        })?;
        let kind = source.column_or("warnings", "kind", NOTE_KIND);
        let sql = format!("SELECT {kind}, text FROM warnings WHERE session_id = ? ORDER BY at_ns LIMIT ?");
        source.each(&sql, [session, MOST_NOTES], |row| {
            let kind = NoteKind::from_word(row.get_ref(0)?.as_str()?);
            facts.notes.push(Note { kind, text: row.get(1)? });
            Ok(())
        })?;
    }
    Ok(())
}

fn processes(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    source.each(&source.select::<Process>("id, session_id, "), [], |row| {
        if let (Some(process), Some(facts)) = (id(row, 0)?, read(row, 2)) {
            if let (Some(&host), false) = (hosts.get(&row.get(1)?), window.hosts.is_empty()) {
                window.host_of.insert(ProcessId(process), host);
            }
            window.processes.insert(ProcessId(process), facts);
        }
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
    let meanings = [
        ("is_launch", older_ops::IS_LAUNCH),
        ("is_async", older_ops::IS_ASYNC),
        ("is_wait", older_ops::IS_WAIT),
        ("is_followed", older_ops::IS_FOLLOWED),
        ("memory", older_ops::MEMORY),
        ("graph_step", older_ops::GRAPH_STEP),
    ];
    let meanings = meanings.map(|(column, otherwise)| source.column_or("ops", column, otherwise));
    source.each(&format!("SELECT id, name, layer, class, {} FROM ops", meanings.join(", ")), [], |row| {
        let layer = word(row, 2, Layer::ALL, Layer::as_str)?;
        if let (Some(op), Some(layer), Some(meaning)) = (id(row, 0)?, layer, meaning_of(row)?) {
            window.ops.insert(OpId(op), Op { name: row.get(1)?, layer, meaning });
        }
        Ok(())
    })
}

fn meaning_of(row: &Row<'_>) -> rusqlite::Result<Option<Meaning>> {
    let Some(class) = word(row, 3, CallClass::ALL, CallClass::as_str)? else { return Ok(None) };
    Ok(Some(Meaning {
        class,
        is_launch: row.get(4)?,
        is_async: row.get(5)?,
        is_wait: row.get(6)?,
        is_followed: row.get(7)?,
        memory: word(row, 8, MemoryKind::ALL, MemoryKind::as_str)?,
        graph_step: word(row, 9, GraphStep::ALL, GraphStep::as_str)?,
    }))
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
    source.each(&source.select::<WaitTarget>("id, "), [], |row| {
        if let (Some(target), Some(facts)) = (id(row, 0)?, read(row, 1)) {
            window.targets.insert(TargetId(target), facts);
        }
        Ok(())
    })
}

/// A busy machine starts thousands of processes a second, so forks are read only for those that were killed.
fn life(source: &Source<'_>, hosts: &BTreeMap<i64, u16>, window: &mut Window) -> rusqlite::Result<()> {
    let sql = format!(
        "{} WHERE at_ns >= ?1 AND at_ns < ?2
          AND (kind = 'oom_kill' OR kind = 'exit' AND pid IN (SELECT pid FROM processes)
            OR kind = 'fork' AND child_pid IN (SELECT pid FROM process_life WHERE kind = 'oom_kill'))
        ORDER BY at_ns LIMIT ?3",
        source.select::<ProcessLife>("session_id, ")
    );
    source.each(&sql, [signed(window.from_ns), signed(window.to_ns), MOST_LIFE], |row| {
        let host = hosts.get(&row.get(0)?).copied().unwrap_or(0);
        window.life.extend(read(row, 1).map(|turn| Life { host, turn }));
        Ok(())
    })
}
