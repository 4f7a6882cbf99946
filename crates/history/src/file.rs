//! A cluster's file, as it is written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use gpuwhy_fleet::{Before, EventKind, Late, News, SUMS, Sums, ToldWorker, Why, Worker};
use rusqlite::types::Value;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params, params_from_iter,
};

use crate::error::HistoryError;
use crate::levels::{Extent, LEVELS, Level};
use crate::tables::{self, APPLICATION_ID, VERSION};

/// What nodes tell later than this is added to coarser windows, too, one by one.
const LATE_NS: u64 = 30_000_000_000;
/// Workers that were heard so long before a restart are known after it.
const KNOWN_NS: u64 = 600_000_000_000;
/// Of any level this much stays, however small the file is to be.
const LEAST_WINDOWS: u64 = 60;
const LEAST_EVENTS: i64 = 10_000;
/// Deleted at once, in windows.
const AT_ONCE: u64 = 360;
const PATIENCE: Duration = Duration::from_secs(10);

/// A mark of a file: how much of the journal is in it.
pub const JOURNAL: &str = "journal";

pub struct ClusterFile {
    connection: Connection,
    path: PathBuf,
}

type Sql<T> = rusqlite::Result<T>;

static ADD: LazyLock<Vec<String>> = LazyLock::new(|| LEVELS.iter().map(|level| add_to(level.table)).collect());

fn add_to(table: &str) -> String {
    let names: Vec<&str> = SUMS.iter().map(|sum| sum.name).collect();
    let marks = vec!["?"; 2 + names.len()].join(", ");
    let more: Vec<String> = names.iter().map(|name| format!("{name} = {name} + excluded.{name}")).collect();
    format!("INSERT INTO {table} VALUES ({marks}) ON CONFLICT (start_ns, worker) DO UPDATE SET {}", more.join(", "))
}

impl ClusterFile {
    /// Opens it, or makes an empty one.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let failed = |error| HistoryError::from_sqlite(path, error);
        let is_new = !path.exists();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        if !is_new {
            check(path, &connection)?;
        }
        let prepare = || {
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            let is_empty = connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
            if is_empty { tables::create(&connection) } else { Ok(()) }
        };
        prepare().map_err(failed)?;
        Ok(Self { connection, path: path.to_path_buf() })
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> HistoryError {
        |error| HistoryError::from_sqlite(&self.path, error)
    }

    /// The last part of the journal that is in it.
    pub fn journal(&self) -> Result<u64, HistoryError> {
        mark(&self.connection, JOURNAL).map_err(self.failed())
    }

    /// Adds what is new, and that the journal is in it up to this part: all or nothing.
    pub fn keep(&mut self, news: &News, journal: u64) -> Result<(), HistoryError> {
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let kept = transaction.and_then(|transaction| {
            keep_workers(&transaction, &news.workers)?;
            keep_sums(&transaction, news)?;
            keep_events(&transaction, news)?;
            set_mark(&transaction, JOURNAL, journal)?;
            transaction.commit()
        });
        kept.map_err(self.failed())
    }

    /// Adds windows that are over to coarser ones.
    pub fn roll_up(&mut self, now_ns: u64) -> Result<(), HistoryError> {
        let rolled = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
            .and_then(|transaction| roll_up(&transaction, now_ns).and_then(|()| transaction.commit()));
        rolled.map_err(self.failed())
    }

    /// Deletes what is too old, and the oldest as long as the file is too large.
    pub fn forget(&mut self, now_ns: u64, most_bytes: u64) -> Result<(), HistoryError> {
        let forget = || {
            for level in LEVELS {
                delete_until(&self.connection, level, now_ns.saturating_sub(level.kept_ns))?;
            }
            let longest_ns = LEVELS.iter().map(|level| level.kept_ns).max().unwrap_or(0);
            let cut = now_ns.saturating_sub(longest_ns).cast_signed();
            self.connection.execute("DELETE FROM events WHERE at_ns < ?", [cut])?;
            while self.used_bytes()? > most_bytes {
                if !self.forget_most()? && !self.forget_events()? {
                    tracing::warn!(path = %self.path.display(), "it is at its size and nothing older can be deleted");
                    break;
                }
            }
            Ok(())
        };
        forget().map_err(self.failed())
    }

    fn used_bytes(&self) -> Sql<u64> {
        let number = |pragma| self.connection.pragma_query_value(None, pragma, |row| whole(row, 0));
        Ok((number("page_count")? - number("freelist_count")?) * number("page_size")?)
    }

    /// Deletes an eighth of the level that has the most windows. False where none has more than it needs.
    fn forget_most(&self) -> Sql<bool> {
        let mut most = None;
        for level in LEVELS {
            let ends = format!("SELECT min(start_ns), max(start_ns) FROM {}", level.table);
            let ends = self.connection.query_row(&ends, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let (Some(first_ns), Some(last_ns)): (Option<i64>, Option<i64>) = ends else { continue };
            let (first_ns, last_ns) = (first_ns.cast_unsigned(), last_ns.cast_unsigned());
            let windows = last_ns.saturating_sub(first_ns) / level.window_ns;
            if windows > LEAST_WINDOWS && most.is_none_or(|(_, _, others)| windows > others) {
                most = Some((level, first_ns, windows));
            }
        }
        let Some((level, first_ns, windows)) = most else { return Ok(false) };
        let cut_ns = first_ns + (windows / 8).max(1) * level.window_ns;
        delete_until(&self.connection, level, cut_ns)?;
        Ok(true)
    }

    /// Deletes the older half of all events. False where there are few.
    fn forget_events(&self) -> Sql<bool> {
        let sql = "DELETE FROM events WHERE (SELECT count(*) FROM events) > ?1 \
                   AND event < (SELECT (min(event) + max(event)) / 2 FROM events)";
        Ok(self.connection.execute(sql, [LEAST_EVENTS])? > 0)
    }

    /// What the cluster goes on with.
    pub fn before(&self, now_ns: u64) -> Result<Before, HistoryError> {
        let read = || {
            let (late, findings) = late(&self.connection, now_ns)?;
            Ok(Before { workers: workers(&self.connection, now_ns)?, late, findings })
        };
        read().map_err(self.failed())
    }
}

fn check(path: &Path, connection: &Connection) -> Result<(), HistoryError> {
    let number = |pragma| {
        let read = connection.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
        read.map_err(|error| HistoryError::from_sqlite(path, error))
    };
    let (id, found) = (number("application_id")?, number("user_version")?);
    // One that was killed while it made the file left it empty.
    let is_empty = path.metadata().is_ok_and(|found| found.len() == 0);
    match id {
        _ if is_empty => Ok(()),
        APPLICATION_ID if found > VERSION => Err(HistoryError::Newer { path: path.into(), found }),
        APPLICATION_ID => Ok(()),
        _ => Err(HistoryError::NotOurs { path: path.into() }),
    }
}

/// Numbers are written without a sign.
fn whole(row: &Row<'_>, at: usize) -> Sql<u64> {
    row.get::<_, i64>(at).map(i64::cast_unsigned)
}

/// How far the file is with each level.
pub fn extents(connection: &Connection) -> Sql<Vec<Extent>> {
    let extent = |table: &str| {
        let (from_ns, to_ns) = (mark(connection, &begins(table))?, mark(connection, &ends(table))?);
        Ok(Extent { from_ns, to_ns })
    };
    LEVELS.iter().map(|level| extent(level.table)).collect()
}

fn begins(table: &str) -> String {
    format!("{table} begins")
}

fn ends(table: &str) -> String {
    format!("{table} ends")
}

fn mark(connection: &Connection, name: &str) -> Sql<u64> {
    let found =
        connection.query_row("SELECT value FROM marks WHERE name = ?", [name], |row| whole(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

fn set_mark(connection: &Connection, name: &str, value: u64) -> Sql<()> {
    let sql = "INSERT INTO marks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.prepare_cached(sql)?.execute(params![name, value.cast_signed()]).map(drop)
}

fn keep_workers(connection: &Connection, workers: &[ToldWorker]) -> Sql<()> {
    let mut insert = connection.prepare_cached("INSERT OR IGNORE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?)")?;
    let mut label = connection.prepare_cached("INSERT OR IGNORE INTO labels VALUES (?, ?, ?)")?;
    for ToldWorker { id, node, worker, first_ns } in workers {
        let Worker { pid, comm, device, gpu, labels } = worker;
        let (id, first_ns) = (id.cast_signed(), first_ns.cast_signed());
        insert.execute(params![id, node, pid, comm, device, gpu, first_ns])?;
        labels.iter().try_for_each(|(key, value)| label.execute(params![id, key, value]).map(drop))?;
    }
    Ok(())
}

fn keep_sums(connection: &Connection, news: &News) -> Sql<()> {
    let extents = extents(connection)?;
    let mut all: Vec<(&(u64, u64), &Sums)> = news.sums.iter().collect();
    all.sort_unstable_by_key(|(key, _)| **key);
    for (at, sql) in ADD.iter().enumerate() {
        let window_ns = LEVELS[at].window_ns;
        // Coarser windows that have been added up already get what came late.
        let is_in = |start_ns: u64| start_ns >= extents[at].from_ns && (at == 0 || start_ns < extents[at].to_ns);
        let mut add = connection.prepare_cached(sql)?;
        for ((start_ns, worker), sums) in all.iter().filter(|((start_ns, _), _)| is_in(*start_ns)) {
            let start_ns = start_ns / window_ns * window_ns;
            let numbers = [start_ns, *worker].into_iter().chain(sums.0);
            add.execute(params_from_iter(numbers.map(|number| Value::Integer(number.cast_signed()))))?;
        }
    }
    let sql = "INSERT INTO told VALUES (?, ?) ON CONFLICT (worker) DO UPDATE SET until_ns = excluded.until_ns";
    let mut told = connection.prepare_cached(sql)?;
    news.told.iter().try_for_each(|(id, ns)| told.execute([id.cast_signed(), ns.cast_signed()]).map(drop))
}

fn keep_events(connection: &Connection, news: &News) -> Sql<()> {
    let sql = "INSERT INTO events (at_ns, node, pid, kind, details) VALUES (?, ?, ?, ?, ?)";
    let mut insert = connection.prepare_cached(sql)?;
    for event in &news.events {
        let details = serde_json::to_string(event).unwrap_or_default();
        insert.execute(params![event.at_ns.cast_signed(), event.node, event.kind.pid(), event.kind.name(), details])?;
    }
    Ok(())
}

fn roll_up(connection: &Connection, now_ns: u64) -> Sql<()> {
    let extents = extents(connection)?;
    let sums: Vec<String> = SUMS.iter().map(|sum| format!("sum({})", sum.name)).collect();
    let mut finer_to_ns = now_ns.saturating_sub(LATE_NS);
    for (at, level) in LEVELS.iter().enumerate().skip(1) {
        let to_ns = finer_to_ns / level.window_ns * level.window_ns;
        if to_ns > extents[at].to_ns {
            let sql = format!(
                "INSERT INTO {} SELECT start_ns / ?1 * ?1, worker, {} FROM {} WHERE start_ns >= ?2 AND start_ns < ?3 \
                 GROUP BY 1, 2",
                level.table,
                sums.join(", "),
                LEVELS[at - 1].table
            );
            let bounds = [level.window_ns, extents[at].to_ns, to_ns].map(u64::cast_signed);
            connection.prepare_cached(&sql)?.execute(bounds)?;
            set_mark(connection, &ends(level.table), to_ns)?;
        }
        finer_to_ns = to_ns.max(extents[at].to_ns);
    }
    Ok(())
}

/// Deletes windows that begin before this, in steps that hold up readers and writers for a short while only. With the last of
/// its windows a worker goes.
fn delete_until(connection: &Connection, level: &Level, cut_ns: u64) -> Sql<()> {
    let Level { table, window_ns, .. } = level;
    let cut_ns = cut_ns / window_ns * window_ns;
    let first = format!("SELECT min(start_ns) FROM {table}");
    loop {
        let first_ns: Option<i64> = connection.query_row(&first, [], |row| row.get(0))?;
        let first_ns = first_ns.map(i64::cast_unsigned).filter(|first_ns| *first_ns < cut_ns);
        let Some(first_ns) = first_ns else { return Ok(()) };
        let until_ns = cut_ns.min(first_ns + AT_ONCE * window_ns);
        let transaction = connection.unchecked_transaction()?;
        transaction.execute(&format!("DELETE FROM {table} WHERE start_ns < ?"), [until_ns.cast_signed()])?;
        set_mark(&transaction, &begins(table), until_ns)?;
        if LEVELS.last().is_some_and(|last| last.table == *table) {
            for table in ["labels", "workers", "told"] {
                let gone = "SELECT worker FROM told WHERE until_ns < ?";
                transaction
                    .execute(&format!("DELETE FROM {table} WHERE worker IN ({gone})"), [until_ns.cast_signed()])?;
            }
        }
        transaction.commit()?;
    }
}

fn workers(connection: &Connection, now_ns: u64) -> Sql<Vec<(ToldWorker, u64)>> {
    let mut labels: HashMap<u64, Vec<(String, String)>> = HashMap::new();
    // Those that were heard lately have sums since then.
    let cut_ns = now_ns.saturating_sub(KNOWN_NS).cast_signed();
    let lately = format!("(SELECT DISTINCT worker FROM {} WHERE start_ns >= ?)", LEVELS[0].table);
    let sql = format!("SELECT worker, key, value FROM labels WHERE worker IN {lately}");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([cut_ns])?;
    while let Some(row) = rows.next()? {
        labels.entry(whole(row, 0)?).or_default().push((row.get(1)?, row.get(2)?));
    }
    let sql = format!(
        "SELECT worker, node, pid, comm, device, gpu, first_ns, until_ns FROM workers JOIN told USING (worker) \
         WHERE worker IN {lately}"
    );
    let mut statement = connection.prepare(&sql)?;
    let row = |row: &Row<'_>| {
        let id = whole(row, 0)?;
        let labels = labels.remove(&id).unwrap_or_default().into_iter().collect();
        let (pid, comm, device, gpu) = (row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        let worker = Worker { pid, comm, device, gpu, labels };
        Ok((ToldWorker { id, node: row.get(1)?, worker, first_ns: whole(row, 6)? }, whole(row, 7)?))
    };
    statement.query_map([cut_ns], row)?.collect()
}

type WasLate = (Late, u64);
type WasFound = (String, u32, Why);

/// Who was late at the end, and what nodes had found a short while before.
fn late(connection: &Connection, now_ns: u64) -> Sql<(Vec<WasLate>, Vec<WasFound>)> {
    // A day is long enough to be late.
    const DAY_NS: u64 = 86_400_000_000_000;
    let (mut late, mut findings): (HashMap<Late, u64>, Vec<WasFound>) = Default::default();
    let mut statement =
        connection.prepare("SELECT details FROM events WHERE at_ns >= ? AND pid IS NOT NULL ORDER BY event")?;
    let mut rows = statement.query([now_ns.saturating_sub(DAY_NS).cast_signed()])?;
    while let Some(row) = rows.next()? {
        let details: String = row.get(0)?;
        let Ok(gpuwhy_fleet::Event { at_ns, node, kind }) = serde_json::from_str(&details) else { continue };
        let seat = |communicator: &str, rank| Some((u64::from_str_radix(communicator, 16).ok()?, rank));
        match kind {
            EventKind::RankBecameLate { pid, communicator, rank, .. } => {
                late.insert(Late { node, pid, seat: seat(&communicator, rank) }, at_ns);
            }
            EventKind::RankIsLateNoMore { pid, communicator, rank, .. } => {
                late.remove(&Late { node, pid, seat: seat(&communicator, rank) });
            }
            EventKind::WorkerBecameSlow { pid, .. } => drop(late.insert(Late { node, pid, seat: None }, at_ns)),
            EventKind::WorkerIsSlowNoMore { pid, .. } => drop(late.remove(&Late { node, pid, seat: None })),
            EventKind::Found { pid, why } if now_ns.saturating_sub(at_ns) < KNOWN_NS => findings.push((node, pid, why)),
            _ => {}
        }
    }
    Ok((late.into_iter().collect(), findings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::level_for;
    use crate::reading::{Key, Reading};
    use gpuwhy_fleet::{Event, WINDOW_NS, window_of};
    use gpuwhy_store::Limits;

    const S: u64 = 1_000_000_000;
    const HOUR: u64 = 3600 * S;
    /// A Thursday.
    const START: u64 = 1_000_000 * HOUR;

    fn told(number: u32) -> ToldWorker {
        let labels = [("job".to_owned(), format!("job{}", number % 2))].into();
        let gpu = (number < 3).then(|| "NVIDIA H200".to_owned());
        let worker = Worker { pid: 100 + number, comm: "python".to_owned(), device: Some(0), gpu, labels };
        let node = format!("n{}", number / 2);
        ToldWorker { id: worker.id(&node), node, worker, first_ns: START }
    }

    /// Four workers that are told of in each window, once a second.
    fn news(window_ns: u64, is_first: bool) -> News {
        let mut news = News::default();
        for worker in (0..4).map(told) {
            let mut sums = Sums::default();
            (sums.0[0], sums.0[1]) = (10 * S, 3);
            news.sums.insert((window_ns, worker.id), sums);
            news.told.insert(worker.id, window_ns + WINDOW_NS);
            news.workers.extend(is_first.then_some(worker));
        }
        news
    }

    struct Kept {
        _folder: tempfile::TempDir,
        path: PathBuf,
        file: ClusterFile,
        journal: u64,
    }

    impl Kept {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("west.db");
            let file = ClusterFile::open(&path).unwrap();
            Self { _folder: folder, path, file, journal: 0 }
        }

        fn keep(&mut self, news: &News) {
            self.journal += 1;
            self.file.keep(news, self.journal).unwrap();
        }

        /// Windows one after the other, tidied now and then.
        fn run(&mut self, from_ns: u64, to_ns: u64, most_bytes: u64) {
            for window in window_of(from_ns) / WINDOW_NS..to_ns / WINDOW_NS {
                self.keep(&news(window * WINDOW_NS, window * WINDOW_NS == START));
                if window % 30 == 0 {
                    self.file.roll_up((window + 1) * WINDOW_NS).unwrap();
                    self.file.forget((window + 1) * WINDOW_NS, most_bytes).unwrap();
                }
            }
        }

        /// The time that was told of, and the steps, as they are read.
        fn read(&self, from_ns: u64, to_ns: u64) -> (u64, u64) {
            let read = Reading::open(&self.path).unwrap().spans(from_ns, to_ns, &[], &Limits::default()).unwrap();
            let [row] = &read.rows[..] else { panic!("{read:?}") };
            (row.sums.0[0], row.sums.0[1])
        }
    }

    #[test]
    fn whatever_time_is_asked_for_all_of_it_is_counted_once() {
        let mut kept = Kept::new();
        let end_ns = START + 5 * HOUR + 17 * 60 * S;
        kept.run(START, end_ns, u64::MAX);
        for back_ns in [60 * S, 20 * 60 * S, 3 * HOUR, 5 * HOUR] {
            let from_ns = (end_ns - back_ns) / HOUR * HOUR;
            let windows = (end_ns - from_ns) / WINDOW_NS;
            assert_eq!(kept.read(from_ns, end_ns), (windows * 4 * 10 * S, windows * 4 * 3), "{back_ns}");
        }
        assert_eq!(kept.read(START, end_ns).0, 4 * (end_ns - START));
        assert_eq!(level_for(end_ns - START, 4), 1);
    }

    #[test]
    fn what_comes_late_is_in_every_level_that_has_its_time() {
        let mut kept = Kept::new();
        let end_ns = START + 4 * HOUR;
        kept.run(START, end_ns, u64::MAX);
        // Of a time that the finest level has no more, of one that it has, and of now.
        for late_ns in [START + HOUR, end_ns - HOUR, end_ns - WINDOW_NS] {
            let before = kept.read(START, end_ns);
            kept.keep(&news(late_ns, false));
            assert_eq!(kept.read(START, end_ns).1, before.1 + 12, "{late_ns}");
        }
        kept.file.roll_up(end_ns + HOUR).unwrap();
        let steps = |table: &str| {
            let sql = format!("SELECT sum(steps) FROM {table}");
            kept.file.connection.query_row(&sql, [], |row| row.get::<_, u32>(0)).unwrap()
        };
        assert_eq!((steps("spans_1m"), steps("spans_10m")), (steps("spans_1h"), steps("spans_1h")));
        assert_eq!(steps("spans_1h"), 4 * 3 * (4 * 360 + 3));
    }

    #[test]
    fn sums_are_told_apart_by_what_workers_are() {
        let mut kept = Kept::new();
        kept.run(START, START + 2 * HOUR, u64::MAX);
        let read = |keys: &[Key]| {
            let reading = Reading::open(&kept.path).unwrap();
            let mut rows = reading.spans(START, START + 2 * HOUR, keys, &Limits::default()).unwrap().rows;
            rows.sort_by(|one, other| one.keys.cmp(&other.keys));
            rows.into_iter().map(|row| (row.keys, row.workers, row.sums.0[0] / HOUR)).collect::<Vec<_>>()
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read(&[Key::Node]), [(vec![text("n0")], 2, 4), (vec![text("n1")], 2, 4)]);
        assert_eq!(read(&[Key::Gpu]), [(vec![None], 1, 2), (vec![text("NVIDIA H200")], 3, 6)]);
        assert_eq!(read(&[Key::Label("job".to_owned())]), [(vec![text("job0")], 2, 4), (vec![text("job1")], 2, 4)]);
        assert_eq!(read(&[Key::Label("team".to_owned())]), [(vec![None], 4, 8)]);
        let hours = [START, START + HOUR].map(|ns| (vec![Some(ns.to_string())], 4, 4));
        assert_eq!(read(&[Key::Hour]), hours);
    }

    #[test]
    fn a_file_stays_small_and_forgets_the_oldest() {
        let mut kept = Kept::new();
        let most = 400 << 10;
        kept.run(START, START + 8 * HOUR, most);
        assert!(kept.file.used_bytes().unwrap() <= most);
        let (told_ns, _) = kept.read(START + 7 * HOUR, START + 8 * HOUR);
        assert_eq!(told_ns, 4 * HOUR, "the last hour is there");
        let count = |kept: &Kept| {
            let sql = "SELECT count(*) FROM workers";
            kept.file.connection.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap()
        };
        assert_eq!(count(&kept), 4);
        // Years later nobody knows them any more.
        kept.file.forget(START + 800 * 24 * HOUR, most).unwrap();
        assert_eq!(count(&kept), 0);
    }

    #[test]
    fn a_restart_goes_on_with_who_was_there_and_who_was_late() {
        let mut kept = Kept::new();
        kept.run(START, START + 60 * S, u64::MAX);
        let communicator = format!("{:016x}", 7);
        let became = |pid| EventKind::RankBecameLate {
            pid,
            communicator: communicator.clone(),
            rank: pid,
            share: 0.2,
            at_a_time_ns: 5,
        };
        let events = [(1, became(1)), (2, became(2)), (3, EventKind::WorkerBecameSlow { pid: 3, times: 1.5 })];
        let over = EventKind::RankIsLateNoMore { pid: 1, communicator: communicator.clone(), rank: 1, since_ns: 1 };
        let events = events.into_iter().chain([(4, over)]);
        let event = |(at, kind)| Event { at_ns: START + at, node: "n0".to_owned(), kind };
        kept.keep(&News { events: events.map(event).collect(), ..News::default() });
        let mut before = ClusterFile::open(&kept.path).unwrap().before(START + 60 * S).unwrap();
        before.workers.sort_by_key(|(told, _)| told.worker.pid);
        assert_eq!(before.workers, (0..4).map(|number| (told(number), START + 60 * S)).collect::<Vec<_>>());
        before.late.sort_by_key(|(late, _)| late.pid);
        let late = |pid, seat| Late { node: "n0".to_owned(), pid, seat };
        assert_eq!(before.late, [(late(2, Some((7, 2))), START + 2), (late(3, None), START + 3)]);
        assert!(ClusterFile::open(&kept.path).unwrap().before(START + HOUR).unwrap().workers.is_empty());
        assert_eq!(ClusterFile::open(&kept.path).unwrap().journal().unwrap(), kept.journal);
    }

    #[test]
    fn files_of_others_and_of_the_future_are_left_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (text, other, newer) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
        std::fs::write(&text, "what somebody wrote").unwrap();
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
        drop(ClusterFile::open(&newer).unwrap());
        Connection::open(&newer).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        assert!(matches!(ClusterFile::open(&text), Err(HistoryError::NotOurs { .. })));
        assert!(matches!(ClusterFile::open(&other), Err(HistoryError::NotOurs { .. })));
        assert!(matches!(ClusterFile::open(&newer), Err(HistoryError::Newer { .. })));
        assert_eq!(std::fs::read_to_string(&text).unwrap(), "what somebody wrote");
    }

    #[test]
    fn anybodys_statement_reads_and_nothing_else() {
        let mut kept = Kept::new();
        kept.run(START, START + 60 * S, u64::MAX);
        let reading = Reading::open(&kept.path).unwrap();
        let answer =
            reading.sql("SELECT count(*) FROM workers JOIN labels USING (worker)", &Limits::default()).unwrap();
        assert_eq!(answer.rows[0][0], gpuwhy_store::Value::Integer(4));
        for harm in ["DELETE FROM workers", "ATTACH 'x' AS y", "PRAGMA journal_mode = OFF"] {
            assert!(reading.sql(harm, &Limits::default()).is_err(), "{harm}");
        }
    }
}
