//! The words with which a row says what its function means, where that is not what is usual for its class.

use gpuwhy_model::{CallClass, GraphStep, Meaning, MemoryKind};

/// A word that a row may say after its class.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// Starts work on the device.
    Launch,
    /// Returns before the work is done.
    Async,
    /// Allocates or frees memory in a way that addresses do not show: by a handle, without a size, or addresses only.
    Unfollowed,
    /// Allocates memory of the host.
    Host,
    /// Allocates or moves memory that is moved as needed.
    Managed,
    /// Begins to capture a graph.
    Capture,
    /// Ends the capture of a graph.
    Captured,
    /// Makes a graph ready.
    Instantiate,
}

pub(crate) const fn meaning(class: CallClass, words: &[Word]) -> Meaning {
    let mut meaning = Meaning::usual_for(class);
    let mut at = 0;
    while at < words.len() {
        match words[at] {
            Word::Launch => meaning.is_launch = true,
            Word::Async => meaning.is_async = true,
            Word::Unfollowed => meaning.is_followed = false,
            Word::Host => meaning.memory = Some(MemoryKind::Host),
            Word::Managed => meaning.memory = Some(MemoryKind::Managed),
            Word::Capture => meaning.graph_step = Some(GraphStep::Capture),
            Word::Captured => meaning.graph_step = Some(GraphStep::Captured),
            Word::Instantiate => meaning.graph_step = Some(GraphStep::Instantiate),
        }
        at += 1;
    }
    meaning
}
