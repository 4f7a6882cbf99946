//! Loads a [`Window`](gpuwhy_window::Window) from the file.

mod calls;
mod collectives;
mod contacts;
mod fabric;
mod gpu_faults;
mod gpus;
mod load;
mod names;
mod records;
mod seconds;
pub(crate) mod source;
mod stacks;
mod sums;

pub(crate) use source::Source;
pub(crate) use stacks::StackLoader;
