//! Programs whose stacks are known: the reference unwinder of libgcc, and in Python the interpreter itself, write down
//! the stack of a slow driver call just before it is made.
//!
//! A tracer that takes the stack when `cuStreamSynchronize` returns finds the sequence number as the call's stream,
//! first a frame in `witness` of `libwitness.so`, and then exactly the frames of the log.

mod addresses;
mod log;
mod nested;
mod program;
mod python_log;
mod pythons;
mod score;

pub use addresses::{Addresses, CodeAddress};
pub use log::{Mapping, WitnessLog, WitnessStack, read_witness_log};
pub use nested::{Nested, NestedCalls};
pub use program::{PROGRAMS, Program, RunningWitness, Testimony, Witness, Witnesses};
pub use python_log::{PythonFrame, PythonLog, PythonStack, read_python_log};
pub use pythons::Python;
pub use score::Score;
