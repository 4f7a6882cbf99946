//! Stacks: how to walk them and what their addresses mean. Unwind tables out of `.eh_frame`, Python's frames, symbols and
//! source lines.
//!
//! Everything here works on files and on the memory of processes that is only read. Nothing knows BPF or the trace file.

pub mod memory;
pub mod python;
pub mod symbols;
pub mod table;
