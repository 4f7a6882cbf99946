//! What a traced function means: what calls of it do to the device, to memory and to whoever makes them.
//!
//! Each row of the call table says it, the trace file keeps it, and whoever reads a trace decides by it. So nobody
//! needs to know what functions are called.

use crate::CallClass;
use crate::api::words;

/// What a function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    pub class: CallClass,
    /// It starts work on the device: a kernel, or a graph of them.
    pub is_launch: bool,
    /// It returns before the work it asks for is done.
    pub is_async: bool,
    /// It is there to wait: it returns when the device has done its work.
    pub is_wait: bool,
    /// Memory that it allocates or frees is followed by address. The size of an allocation is known, too.
    pub is_followed: bool,
    /// Which memory it allocates or moves, where that is always the same.
    pub memory: Option<MemoryKind>,
    pub graph_step: Option<GraphStep>,
}

words! {
    /// Which memory it is.
    MemoryKind {
        Device = "device",
        /// The host's own, pinned for the device.
        Host = "host",
        /// Moved between both as needed.
        Managed = "managed",
    }
}

words! {
    /// A step on the way to a graph that can be launched.
    GraphStep {
        /// From now on, calls are recorded in place of being done.
        Capture = "capture",
        /// What was recorded is a graph.
        Captured = "captured",
        /// What was recorded is made ready for launches.
        Instantiate = "instantiate",
    }
}

impl Meaning {
    /// What functions of a class mean, unless their row says something else.
    pub const fn usual_for(class: CallClass) -> Self {
        Self {
            class,
            is_launch: matches!(class, CallClass::Launch),
            is_async: matches!(class, CallClass::Launch | CallClass::Event | CallClass::Collective),
            is_wait: matches!(class, CallClass::Sync),
            is_followed: matches!(class, CallClass::Alloc | CallClass::Free),
            memory: if matches!(class, CallClass::Alloc) { Some(MemoryKind::Device) } else { None },
            graph_step: None,
        }
    }

    /// Whether calls name a kernel by their handle. A launch of a graph names the graph.
    pub fn is_kernel_launch(&self) -> bool {
        self.class == CallClass::Launch
    }

    pub fn is_graph_launch(&self) -> bool {
        self.is_launch && !self.is_kernel_launch()
    }

    /// Whether calls return when the device has done its work.
    pub fn awaits_work(&self) -> bool {
        self.is_wait || (self.class == CallClass::Copy && !self.is_async)
    }

    /// Whether calls give the device work and return before it is done. The host does not wait for what sets memory.
    pub fn gives_work(&self) -> bool {
        self.is_launch || self.class == CallClass::Memset || (self.class == CallClass::Copy && self.is_async)
    }

    /// An allocation whose memory is followed from here on.
    pub fn is_followed_alloc(&self) -> bool {
        self.class == CallClass::Alloc && self.is_followed
    }

    /// A free of memory that was followed until here.
    pub fn is_followed_free(&self) -> bool {
        self.class == CallClass::Free && self.is_followed
    }
}

impl From<CallClass> for Meaning {
    fn from(class: CallClass) -> Self {
        Self::usual_for(class)
    }
}
