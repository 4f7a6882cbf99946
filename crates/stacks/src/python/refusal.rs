//! Why the frames of an interpreter are not walked.

use std::fmt;

use super::version::{SUPPORTED, Version};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The file cannot be read, or lacks something.
    File(String),
    /// No version whose frames we know.
    Unsupported(String),
    /// A build without the global lock, whose objects are laid out differently.
    FreeThreaded,
    /// Nothing to walk yet: the interpreter starts or ends. Worth another try.
    NotReady(String),
    /// The memory does not look as this version's has to.
    Implausible(String),
}

impl Refusal {
    pub(super) fn unsupported(version: Version) -> Self {
        Self::Unsupported(format!("Python {version} is not supported ({SUPPORTED} are)"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(why) | Self::Unsupported(why) => formatter.write_str(why),
            Self::FreeThreaded => formatter.write_str("a free-threaded build of Python is not supported"),
            Self::NotReady(why) => write!(formatter, "not ready: {why}"),
            Self::Implausible(why) => write!(formatter, "its memory is not laid out as expected: {why}"),
        }
    }
}

impl std::error::Error for Refusal {}
