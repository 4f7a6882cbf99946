//! What a cluster knows of its ranks. Agents tell digests; whoever gathers them says which rank holds everybody up.
//!
//! | module | what it is |
//! |---|---|
//! | `digest` | what a worker did in one second |
//! | `vocabulary` | what the numbers of a digest are called |
//! | `account` | how long a rank has waited for others, by the order of operations and not by a clock |
//! | `cohort` | which rank of a communicator the others wait for, and by how much that is unusual |
//! | `standing` | since when a rank is late: what it takes to become late, and to be late no more |
//! | `rhythm` | how often a program comes round |
//! | `outbox` | digests on their way to whoever sends them |
//! | `cluster`, `clusters` | everybody who tells digests, and what follows from them |
//!
//! Nothing here does I/O or reads a clock.

mod account;
mod cluster;
mod clusters;
mod cohort;
mod digest;
mod outbox;
mod rhythm;
mod standing;
mod vocabulary;

pub use account::{Account, Point};
pub use cluster::{Cluster, Event, EventKind, NodeState, Straggler, Told, Why};
pub use clusters::{Clusters, UNNAMED};
pub use cohort::{Comparison, Lateness, compare};
pub use digest::{Digest, Part, STATES, Worker};
pub use outbox::Outbox;
pub use rhythm::Rhythm;
pub use standing::Standing;
pub use vocabulary::{COMMUNICATOR, QUANTITIES, Quantity, QuantityKind, RANK, RANKS, STATE};
