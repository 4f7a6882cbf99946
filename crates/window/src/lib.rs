//! A span of a trace in memory, as plain records: what analysis looks at.
//!
//! A file may hold ten million calls, so a window holds sums over all of them and a bounded number of rows: where a
//! table has more, equal parts of the span give equal numbers of rows, and `Covered::spans` says which times those are.
//!
//! Nothing here does I/O or reads a clock. Whoever has records can make a window of them.

mod site;
mod stack;
mod sums;
mod window;

pub use site::{is_own_python, is_same_origin, site_position};
pub use stack::LoadedStack;
pub use sums::{CallSecond, CallSum, ThreadSecond, ThreadSum};
pub use window::{
    Collective, CommunicatorEnd, Covered, Device, FabricErrors, GpuFaults, GpuHealth, GpuLinkFault, GpuLost, GpuWord,
    Host, Life, LinkSlowed, Op, Scope, SessionFacts, Thread, Unusual, Window, Xid,
};
