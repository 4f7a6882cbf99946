//! Where time and memory went, what was lost: answers on traces with known truth, on a recording, on empty and old files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cited;
mod coverage;
mod memory;
mod off_cpu;
mod old_files;
mod stacks;
mod support;
mod test_report;
mod waits;
