//! Why a GPU waits: a [`Window`](gpuwhy_window::Window) of a trace in, an [`Explanation`](gpuwhy_model::Explanation)
//! with its evidence out. Nothing here reads a file or a clock.
//!
//! | module | what it answers |
//! |---|---|
//! | [`explain`] | the whole: what happened, who is to blame, what is innocent |
//! | [`rules`] | one cause each: a file whose doc comment is its page in the documentation |
//! | `situation` | the window, with what all others look up in it; who feeds the GPU |
//! | `dispatcher`, `parts`, `steps` | a thread that feeds the GPU: where its time went, what it does over and over |
//! | [`DispatchThreads`] | the same closer up: by second and by step |
//! | `sync_point` | which calls wait for the GPU |
//! | `class`, `waiting`, `waits` | what a blocked thread waited for, who ended the wait, how long it took |
//! | `gpu` | when the GPU worked and when it had nothing to do, and what the host did meanwhile |
//! | [`phases`] | which part of a run is loading, and which is what it does from then on |
//! | [`slumps`] | short incidents in long runs |
//! | `graph` | whom it waited for, and what that one did meanwhile |
//! | `places` | where in the code that is |
//! | `cohorts`, [`onset`], `hangs`, [`clocks`] | ranks: who comes last, since when, or never, what the clocks of their hosts differ by |
//! | [`ledger`] | which GPU memory is allocated |
//! | `case`, `confidence`, `ranking`, `coverage` | how grave, how sure, in which order, based on what |

mod case;
mod causes;
mod class;
pub mod clocks;
mod cohorts;
mod confidence;
mod coverage;
mod dispatcher;
mod explain;
mod gpu;
mod graph;
mod hangs;
mod incidents;
pub mod ledger;
mod onset;
mod parts;
mod phases;
mod places;
mod ranking;
pub mod rules;
mod situation;
mod steps;
mod sync_point;
mod threads;
mod waiting;
mod waits;
mod words;

pub use causes::causes_markdown;
pub use confidence::HIGH as HIGH_CONFIDENCE;
pub use coverage::seen_in_part;
pub use explain::explain;
pub use hangs::may_hang;
pub use incidents::{add_end, add_incident, slumps};
pub use onset::{Onset, onset};
pub use phases::{WorkSecond, phases};
pub use threads::{DispatchThread, DispatchThreads, StepParts};
