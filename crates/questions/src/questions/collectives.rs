use clap::Args;
use gpuwhy_store::Value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, AskError, Asked, Basis, Paging, Part};

/// Operations of several GPUs (NCCL, RCCL): which ranks took part, how often each of them came last, how much later than
/// the others, and how long it waited for the one that came last. By the moment at which the program asked for an
/// operation; the GPU may still have had other work before it.
#[derive(Args, Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct Collectives {
    #[command(flatten)]
    #[serde(flatten)]
    pub part: Part,
    #[command(flatten)]
    #[serde(flatten)]
    pub paging: Paging,
}

#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct CollectiveRanks {
    #[serde(flatten)]
    pub basis: Basis,
    /// One for each rank of each communicator, those that kept others waiting longest first.
    pub ranks: Vec<CollectiveRank>,
    /// What to say as `after` for the next ones, where there are more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct CollectiveRank {
    /// The communicator: its `comm_id_hash` in hexadecimal digits, equal on all ranks. Null for one from before the trace.
    pub communicator: Option<String>,
    pub rank: Option<u32>,
    pub nranks: Option<u32>,
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    /// Operations that it asked for, sends and receives too, and how much it gave to them or got.
    pub operations: u64,
    pub bytes: u64,
    /// The collective ones of which all ranks were seen; those of a graph that is launched count as one. The rest of the row is
    /// about them.
    pub complete: u64,
    /// In how many of them it was the last to come.
    pub last: u64,
    /// By how much it came after the one before it, in all of those together.
    pub late_ns: u64,
    /// How long it waited for the last one to come, in all others together.
    pub waited_ns: u64,
}

/// The version in which they came to be, and that in which those of graphs did.
const SINCE: u32 = 6;
const GRAPHS_SINCE: u32 = 8;

const ASKED: &str = "
WITH asked AS (
  SELECT comm_id_hash, seq, NULL AS replay, 1 AS operations, rank, nranks, pid, tid, comm, bytes, timestamp_ns
  FROM nccl_events
  WHERE timestamp_ns >= ?1 AND timestamp_ns < ?2 AND child_id_hash IS NULL AND op NOT IN ('COMM_INIT', 'COMM_END')";

const ASKED_BY_GRAPHS: &str = "
    AND capture_began_ns IS NULL
  UNION ALL
  SELECT comm_id_hash, seq, replay, operations, rank, nranks, pid, tid, comm, bytes, timestamp_ns
  FROM nccl_replays WHERE timestamp_ns >= ?1 AND timestamp_ns < ?2";

const ARRIVALS: &str = "
), arrivals AS (
  SELECT comm_id_hash, operations, rank, nranks, pid, tid, comm, bytes, timestamp_ns,
    count(*) OVER together = nranks AS is_complete, max(timestamp_ns) OVER together AS last_ns,
    lag(timestamp_ns) OVER in_order AS before_ns, lead(timestamp_ns) OVER in_order AS after_ns
  FROM asked
  WINDOW together AS (PARTITION BY comm_id_hash, seq, replay),
    in_order AS (PARTITION BY comm_id_hash, seq, replay ORDER BY timestamp_ns, rank)
)
SELECT CASE WHEN comm_id_hash IS NOT NULL THEN printf('%016x', comm_id_hash) END AS communicator, rank, nranks, pid, tid, comm, sum(operations) AS operations,
  coalesce(sum(bytes), 0) AS bytes, coalesce(sum(is_complete), 0) AS complete,
  coalesce(sum(is_complete AND after_ns IS NULL), 0) AS last,
  coalesce(sum(timestamp_ns - before_ns) FILTER (WHERE is_complete AND after_ns IS NULL), 0) AS late_ns,
  coalesce(sum(last_ns - timestamp_ns) FILTER (WHERE is_complete), 0) AS waited_ns
FROM arrivals WHERE ?3 IS NULL OR pid = ?4
GROUP BY comm_id_hash, rank, nranks, pid, tid, comm
ORDER BY late_ns DESC, comm_id_hash, rank, pid, tid LIMIT ?5 OFFSET ?6";

impl Ask for Collectives {
    const NAME: &'static str = "collectives";

    type Answer = CollectiveRanks;

    fn ask(&self, asked: &Asked<'_>) -> Result<CollectiveRanks, AskError> {
        let reading = asked.read(&self.part)?;
        let mut basis = Basis::read(&reading)?;
        let mut ranks = Vec::new();
        if reading.trace.version() >= SINCE {
            let page = [self.paging.limit()? + 1, self.paging.offset()?].map(|number| Value::Integer(number as i64));
            let by_graphs = if reading.trace.version() >= GRAPHS_SINCE { ASKED_BY_GRAPHS } else { "" };
            let sql = [ASKED, by_graphs, ARRIVALS].concat();
            ranks = reading.select(&sql, &[&reading.bounds()[..], &page].concat())?;
        } else {
            basis.coverage.unattached.push("the file is of an earlier version, without collectives".to_owned());
        }
        let next = self.paging.cut(&mut ranks)?;
        Ok(CollectiveRanks { basis, ranks, next })
    }
}
