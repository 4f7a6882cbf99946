//! The cluster: what agents tell of each second, and what they are told in return.
//!
//! | module | what it is |
//! |---|---|
//! | `vocabulary` | digests as metrics of OpenTelemetry, and back; what is told in return |
//! | `push` | tells a fleet, and hears from it |
//! | `ingest` | takes what agents and anybody else push |
//! | `grpc` | the same over gRPC |

pub(crate) mod grpc;
mod ingest;
mod push;
mod vocabulary;

pub use ingest::Fleet;
pub(crate) use ingest::door;
pub use push::{FleetAddress, Mode, Push, PushError, packed, standings};
pub use vocabulary::Standing;
