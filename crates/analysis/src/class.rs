//! What a blocked stretch was a wait for.

use gpuwhy_model::{Stretch, TargetKind, WaitReason};
use gpuwhy_window::Window;

/// A kind of wait, as far as one record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitClass {
    /// In a call that waits for the GPU.
    Gpu,
    /// In any other call of the GPU's libraries.
    InCall,
    Lock,
    Gil,
    /// For what another thread hands over: a queue, a pipe, a Unix socket.
    Input,
    /// The same, from another thread of the process that feeds the GPU, too.
    Handover,
    Network,
    Io,
    Fault,
    /// Inside memory reclaim or compaction.
    Reclaim,
    /// On purpose.
    Sleep,
    Other,
}

impl WaitClass {
    pub const ALL: &'static [Self] = &[
        Self::Gpu,
        Self::InCall,
        Self::Lock,
        Self::Gil,
        Self::Input,
        Self::Handover,
        Self::Network,
        Self::Io,
        Self::Fault,
        Self::Reclaim,
        Self::Sleep,
        Self::Other,
    ];

    /// Whether another thread ends such a wait when it is done with something.
    pub fn is_for_a_thread(self) -> bool {
        matches!(self, Self::Lock | Self::Gil | Self::Input | Self::Handover | Self::Network)
    }

    /// What a thread that waits like this does.
    pub fn doing(self) -> &'static str {
        match self {
            Self::Gpu => "waiting for the GPU",
            Self::InCall => "waiting inside a GPU call",
            Self::Lock => "waiting for a lock",
            Self::Gil => "waiting for Python's interpreter lock",
            Self::Input => "waiting for input",
            Self::Handover => "waiting for its turn",
            Self::Network => "waiting for the network",
            Self::Io => "waiting for a disk",
            Self::Fault => "waiting for a page fault",
            Self::Reclaim => "reclaiming memory",
            Self::Sleep => "asleep on purpose",
            Self::Other => "waiting for something else",
        }
    }

    /// What is most likely where no record tells more than the reason.
    pub fn of_reason(reason: WaitReason) -> Self {
        match reason {
            WaitReason::Futex => Self::Lock,
            WaitReason::Io => Self::Io,
            WaitReason::Fault => Self::Fault,
            WaitReason::Sleep => Self::Sleep,
            WaitReason::Ioctl => Self::InCall,
            WaitReason::Poll | WaitReason::Stream | WaitReason::Other => Self::Other,
        }
    }
}

/// `None` for a stretch that was not blocked.
pub fn classify(window: &Window, stretch: &Stretch) -> Option<WaitClass> {
    let reason = stretch.reason?;
    let kind = stretch.target.and_then(|target| window.targets.get(&target)).map(|target| target.kind);
    let call = stretch.op.and_then(|op| window.ops.get(&op)).map(|op| op.meaning);
    Some(match (reason, call) {
        (WaitReason::Io, _) => WaitClass::Io,
        (WaitReason::Fault, _) => WaitClass::Fault,
        (WaitReason::Futex, _) if kind == Some(TargetKind::Gil) => WaitClass::Gil,
        // A condition variable in a wait for the GPU is how the library is told that the GPU is done.
        (WaitReason::Futex, Some(call)) if call.is_wait && kind == Some(TargetKind::Signal) => WaitClass::Gpu,
        (WaitReason::Futex, Some(_)) => WaitClass::Lock,
        (WaitReason::Futex, None) if kind == Some(TargetKind::Signal) => WaitClass::Input,
        (WaitReason::Futex, None) => WaitClass::Lock,
        (_, Some(call)) if call.is_wait => WaitClass::Gpu,
        (_, Some(_)) => WaitClass::InCall,
        (WaitReason::Sleep, None) => WaitClass::Sleep,
        (WaitReason::Poll | WaitReason::Stream, None) => of_stream(kind, stretch),
        (WaitReason::Ioctl | WaitReason::Other, None) => WaitClass::Other,
    })
}

fn of_stream(kind: Option<TargetKind>, stretch: &Stretch) -> WaitClass {
    match kind {
        Some(TargetKind::Pipe | TargetKind::Unix | TargetKind::Eventfd) => WaitClass::Input,
        Some(TargetKind::Tcp | TargetKind::Socket) => WaitClass::Network,
        // Somebody made it go on, so it waited for somebody.
        None if stretch.woken_by.is_some() => WaitClass::Input,
        _ => WaitClass::Other,
    }
}
