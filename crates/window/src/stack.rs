//! Stacks with the names of their frames.

use std::sync::Arc;

use gpuwhy_model::{Frame, PythonEnd, WalkEnd};

/// A stack whose frames are known by name. Stacks share the frames they have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedStack {
    /// Innermost first.
    pub frames: Vec<Arc<Frame>>,
    pub end: WalkEnd,
    pub python_end: PythonEnd,
    /// Position of the frame that a person wants to see first, see `site_position`.
    pub site: Option<usize>,
}

impl LoadedStack {
    pub fn site_frame(&self) -> Option<&Frame> {
        self.site.and_then(|position| self.frames.get(position)).map(Arc::as_ref)
    }
}
