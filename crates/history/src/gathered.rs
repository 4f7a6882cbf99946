//! What a fleet knows now, with its journal.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gpuwhy_fleet::{Clusters, News, Rates};

use crate::error::HistoryError;
use crate::folder::file_of;
use crate::journal::{self, Journal};
use crate::reading::Reading;

/// More sums wait for nobody: their file is not written any more.
const MOST_WAITING: usize = 2_000_000;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Metrics,
    Logs,
}

/// A message of the journal.
#[derive(Debug)]
pub struct Entry<'a> {
    pub kind: Kind,
    /// When it came.
    pub at_ns: u64,
    /// When it was sent, by the clock of its node, where it says so.
    pub sent_ns: Option<u64>,
    /// Whether the message is packed with gzip, as it came.
    pub is_packed: bool,
    pub message: &'a [u8],
}

/// All clusters of a fleet. By default nothing is kept of them.
#[derive(Default)]
pub struct Gathered {
    pub clusters: Clusters,
    pub rates: Option<Rates>,
    kept: Option<Kept>,
}

struct Kept {
    folder: PathBuf,
    journal: Journal,
    /// Parts of the journal from before, and for each cluster the last one that is in its file.
    unread: Vec<u64>,
    marks: BTreeMap<String, u64>,
    not_kept: u64,
    is_failing: bool,
}

/// What is to be written, of all clusters, and the last part of the journal that it contains.
pub(crate) struct Batch {
    pub news: Vec<(String, News)>,
    pub journal: u64,
}

impl Gathered {
    pub(crate) fn keeping(folder: PathBuf, journal: Journal, unread: Vec<u64>, marks: BTreeMap<String, u64>) -> Self {
        let kept = Kept { folder, journal, unread, marks, not_kept: 0, is_failing: false };
        Self { kept: Some(kept), ..Self::default() }
    }

    /// Puts a message into the journal. False where it cannot be kept.
    pub fn note(&mut self, entry: &Entry<'_>) -> bool {
        let waiting: usize = self.clusters.all().map(|(_, cluster)| cluster.waiting()).sum();
        let Some(kept) = &mut self.kept else { return false };
        let kind = match entry.kind {
            Kind::Metrics => 0,
            Kind::Logs => 1,
        };
        let noted = match waiting < MOST_WAITING {
            true => {
                let times = [entry.at_ns, entry.sent_ns.unwrap_or(0)].map(u64::to_le_bytes);
                kept.journal.add(&[&times[0], &times[1], &[kind | u8::from(entry.is_packed) << 1], entry.message])
            }
            false => Err(HistoryError::DiskFull { path: kept.folder.clone() }),
        };
        match &noted {
            Err(error) if !std::mem::replace(&mut kept.is_failing, true) => {
                tracing::warn!(%error, "what nodes tell is not kept");
            }
            Ok(()) if std::mem::take(&mut kept.is_failing) => tracing::warn!("what nodes tell is kept again"),
            _ => {}
        }
        kept.not_kept += u64::from(noted.is_err());
        noted.is_ok()
    }

    /// Whether anything is kept at all.
    pub fn keeps(&self) -> bool {
        self.kept.is_some()
    }

    /// Messages that were told and not kept.
    pub fn not_kept(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.not_kept)
    }

    /// Reads what an earlier process has left in the journal. Each message is taken with the clusters that have it in their files
    /// already.
    pub fn resume(
        &mut self,
        mut take: impl FnMut(&mut Self, &Entry<'_>, &dyn Fn(&str) -> bool),
    ) -> Result<(), HistoryError> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let (folder, parts, marks) = (kept.folder.clone(), std::mem::take(&mut kept.unread), kept.marks.clone());
        for part in parts {
            let has = |cluster: &str| marks.get(cluster).is_some_and(|mark| *mark >= part);
            journal::read(&folder, part, |bytes| {
                let Some((at_ns, bytes)) = bytes.split_first_chunk() else { return };
                let Some((sent_ns, bytes)) = bytes.split_first_chunk() else { return };
                let Some((kind, message)) = bytes.split_first() else { return };
                let (at_ns, sent_ns) = (u64::from_le_bytes(*at_ns), u64::from_le_bytes(*sent_ns));
                let (sent_ns, is_packed) = ((sent_ns > 0).then_some(sent_ns), kind & 2 > 0);
                let kind = if kind & 1 == 0 { Kind::Metrics } else { Kind::Logs };
                take(self, &Entry { kind, at_ns, sent_ns, is_packed, message }, &has);
            })?;
        }
        Ok(())
    }

    /// What is new since the last time. Whatever comes from now on goes into another part of the journal.
    pub(crate) fn batch(&mut self) -> Result<Option<Batch>, HistoryError> {
        let Some(kept) = &mut self.kept else { return Ok(None) };
        let journal = kept.journal.turn()?;
        let news = self.clusters.all_mut().map(|(name, cluster)| (name.to_owned(), cluster.take_news()));
        Ok(Some(Batch { news: news.collect(), journal }))
    }

    pub(crate) fn put_back(&mut self, cluster: &str, news: News) {
        if let Some(cluster) = self.clusters.cluster(cluster) {
            cluster.put_back(news);
        }
    }

    pub(crate) fn forget_journal(&mut self, until: u64) -> Result<(), HistoryError> {
        self.kept.as_mut().map_or(Ok(()), |kept| kept.journal.forget_until(until))
    }

    /// What is kept of a cluster.
    pub fn read(&self, cluster: &str) -> Result<Reading, HistoryError> {
        let missing = || HistoryError::NotFound { cluster: cluster.to_owned() };
        let kept = self.kept.as_ref().ok_or(HistoryError::NotKept)?;
        let path = file_of(&kept.folder, cluster);
        if path.exists() { Reading::open(&path) } else { Err(missing()) }
    }
}
