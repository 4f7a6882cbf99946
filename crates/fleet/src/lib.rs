//! What a cluster knows of its ranks. Agents tell digests; whoever gathers them says which rank holds everybody up.
//!
//! | module | what it is |
//! |---|---|
//! | `digest` | what a worker did in one second |
//! | `vocabulary` | what the numbers of a digest are called |
//! | `account` | how long a rank has waited for others, by the order of operations and not by a clock |
//! | `cohort` | which rank of a communicator the others wait for, and by how much that is unusual |
//! | `standing` | since when a rank is late: what it takes to become late, and to be late no more |
//! | `pace` | the same for workers that wait for nobody, by how long their steps take |
//! | `common` | what those who are late have in common |
//! | `rhythm` | how often a program comes round |
//! | `span` | what a worker did in a stretch of time, as sums |
//! | `news` | what is to be kept of a cluster, and what it goes on with after a restart |
//! | `rates` | what an hour of a GPU costs |
//! | `outbox` | digests on their way to whoever sends them |
//! | `cluster`, `clusters` | everybody who tells digests, and what follows from them |
//!
//! Nothing here does I/O or reads a clock.

mod account;
mod cluster;
mod clusters;
mod cohort;
mod common;
mod digest;
mod news;
mod outbox;
mod pace;
mod rates;
mod rhythm;
mod span;
mod standing;
mod vocabulary;

pub use account::{Account, Point};
pub use cluster::{Came, Cluster, Event, EventKind, NodeState, Ranked, Straggler, Told, Why};
pub use clusters::{Clusters, UNNAMED};
pub use cohort::{Comparison, Lateness, compare};
pub use common::Common;
pub use digest::{Digest, Part, STATES, Worker};
pub use news::{Before, Late, News, Told as ToldWorker};
pub use outbox::Outbox;
pub use pace::Pace;
pub use rates::Rates;
pub use rhythm::Rhythm;
pub use span::{SUMS, Sum, Sums, WINDOW_NS, window_of};
pub use standing::Standing;
pub use vocabulary::{COMMUNICATOR, QUANTITIES, Quantity, QuantityKind, RANK, RANKS, STATE};
