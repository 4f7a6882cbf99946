//! What a process belongs to, as its surroundings name it: a container, a pod, a job, a rank, a user.

/// A key and its value. A process has at most one value for each key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    pub key: String,
    /// Hostile input: it often comes from the environment of a traced program.
    pub value: String,
}
