//! Questions about calls and time, asked of small traces whose every row is known.

mod any_trace;
mod audit;
mod calls;
mod compare;
mod small;
mod timeline;
