//! Questions about calls and time, asked of small traces whose every row is known.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod any_trace;
mod audit;
mod calls;
mod compare;
mod small;
mod timeline;
