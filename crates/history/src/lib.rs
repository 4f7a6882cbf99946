//! What a fleet keeps. Whatever is told goes into a journal before it is answered; every few seconds its sums go into the
//! cluster's file, and the journal begins anew. So nothing that was acknowledged is lost with the process, and nothing that
//! is told twice counts twice.
//!
//! | module | what it is |
//! |---|---|
//! | `levels` | windows of time that sums are kept for, and for how long |
//! | `tables` | what is in a cluster's file |
//! | `journal` | what was told and is not in a file yet |
//! | `file` | a cluster's file, as it is written: news, coarser windows, an end to its size |
//! | `reading` | the same, as it is read: sums over any time, events, anybody's SQL |
//! | `folder` | the files of all clusters, which one process writes |
//! | `gathered` | what a fleet knows now, with its journal |
//! | `keeper` | brings what is new into the files, now and then |
//! | `error` | what can go wrong, in words a user can act on |

mod error;
mod file;
mod folder;
mod gathered;
mod journal;
mod keeper;
mod levels;
mod reading;
mod tables;

pub use error::HistoryError;
pub use gathered::{Entry, Gathered, Kind};
pub use keeper::{Keeper, Keeping, open};
pub use levels::{LEVELS, Level};
pub use reading::{Key, Reading, Row, Spans};
pub use tables::tables_markdown;
