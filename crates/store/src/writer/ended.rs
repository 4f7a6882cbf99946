//! Names of processes and threads that have ended. Under a size cap they go when nothing is left that was written before
//! they ended: nothing written later cites them.

use std::collections::VecDeque;

use gpuwhy_model::{ProcessId, ThreadId};
use rusqlite::Connection;

use super::{Writer, signed};

#[derive(Clone, Copy, Debug)]
enum Name {
    Process(ProcessId),
    Thread(ThreadId),
}

/// What the rows of a name take, about: a process has labels, kernels and series of samples.
const PROCESS_BYTES: u64 = 400;
const THREAD_BYTES: u64 = 40;

/// In the order in which they ended, with the time.
#[derive(Default)]
pub(super) struct Ended {
    names: VecDeque<(u64, Name)>,
    bytes: u64,
}

impl Writer {
    /// No later row cites the process.
    pub fn process_ended(&mut self, id: ProcessId, now_ns: u64) {
        self.name_ended(Name::Process(id), now_ns);
    }

    /// No later row cites the thread.
    pub fn thread_ended(&mut self, id: ThreadId, now_ns: u64) {
        self.name_ended(Name::Thread(id), now_ns);
    }

    fn name_ended(&mut self, name: Name, now_ns: u64) {
        if self.cap.is_none() {
            return;
        }
        let last_ns = self.ended.names.back().map_or(0, |(ended_ns, _)| *ended_ns);
        // The clock may have been set back since the last row.
        let ended_ns = now_ns.max(self.newest_record_ns).max(self.moved.newest_ns()).max(last_ns);
        self.ended.names.push_back((ended_ns, name));
        self.ended.bytes += name.bytes();
    }
}

impl Ended {
    /// Deletes up to `most` names of what ended before the oldest row that is left, and says how many rows that were.
    pub fn expire(&mut self, connection: &Connection, oldest_ns: i64, most: usize) -> rusqlite::Result<usize> {
        let is_gone = |(ended_ns, _): &&(u64, Name)| signed(*ended_ns) < oldest_ns;
        let gone = self.names.iter().take(most).take_while(is_gone).count();
        let gone = self.names.drain(..gone).map(|(_, name)| name);
        gone.inspect(|name| self.bytes -= name.bytes()).map(|name| name.delete(connection)).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Name {
    fn bytes(self) -> u64 {
        match self {
            Self::Process(_) => PROCESS_BYTES,
            Self::Thread(_) => THREAD_BYTES,
        }
    }

    fn delete(self, connection: &Connection) -> rusqlite::Result<usize> {
        let delete = |sql, id: u32| connection.prepare_cached(sql)?.execute([id]);
        match self {
            Self::Thread(ThreadId(id)) => delete("DELETE FROM threads WHERE id = ?", id),
            Self::Process(ProcessId(id)) => Ok(delete("DELETE FROM kernels WHERE process_id = ?", id)?
                + delete("DELETE FROM process_labels WHERE process_id = ?", id)?
                + delete("DELETE FROM processes WHERE id = ?", id)?),
        }
    }
}
