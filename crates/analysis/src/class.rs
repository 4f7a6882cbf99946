//! What a blocked stretch was a wait for.

use std::sync::Arc;

use gpuwhy_model::{Frame, FrameKind, Stretch, TargetKind, WaitReason, WaitTarget};
use gpuwhy_window::{LoadedStack, Window, is_own_python};

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
    /// For somebody to ask for something: a server without work.
    Request,
    /// For a process that it started to end.
    Child,
    /// In writing, for somebody or something to take what it writes.
    Output,
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
        Self::Request,
        Self::Child,
        Self::Output,
        Self::Io,
        Self::Fault,
        Self::Reclaim,
        Self::Sleep,
        Self::Other,
    ];

    /// Whether another thread ends such a wait when it is done with something.
    pub fn is_for_a_thread(self) -> bool {
        matches!(
            self,
            Self::Lock | Self::Gil | Self::Input | Self::Handover | Self::Network | Self::Child | Self::Output
        )
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
            Self::Request => "waiting for requests",
            Self::Child => "waiting for a process it started",
            Self::Output => "blocked in writing",
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

/// What the kernel was doing for a thread that waits for the end of another process, or in writing.
const WAITING_FOR_A_CHILD: &[&str] = &["do_wait", "kernel_wait4", "kernel_waitid"];
const WRITING: &[&str] = &[
    "pipe_write",
    "anon_pipe_write",
    "fifo_pipe_write",
    "sk_stream_wait_memory",
    "sock_alloc_send_pskb",
    "unix_stream_sendmsg",
    "unix_dgram_sendmsg",
    "n_tty_write",
];

const LOCKING_A_FILE: &[&str] = &["flock_lock_inode_wait", "locks_lock_inode_wait", "fcntl_setlk", "do_lock_file_wait"];

/// Where Python waits for a process that it started, and reads what that one says meanwhile.
const STARTING_CHILDREN: &str = "/subprocess.py";

/// `None` for a stretch that was not blocked.
pub fn classify(window: &Window, stretch: &Stretch) -> Option<WaitClass> {
    let reason = stretch.reason?;
    if matches!(reason, WaitReason::Other | WaitReason::Poll | WaitReason::Stream) && stretch.op.is_none() {
        if is_for_clients(window, stretch) {
            return Some(WaitClass::Request);
        }
        if is_for_a_child(window, stretch, reason) {
            return Some(WaitClass::Child);
        }
        if is_in_kernel_function(window, stretch, WRITING) {
            return Some(WaitClass::Output);
        }
        if is_in_kernel_function(window, stretch, LOCKING_A_FILE) {
            return Some(WaitClass::Lock);
        }
    }
    let kind = stretch.target.and_then(|target| window.targets.get(&target)).map(|target| target.kind);
    let call = stretch.op.and_then(|op| window.ops.get(&op)).map(|op| op.meaning);
    Some(match (reason, call) {
        (WaitReason::Io, _) => WaitClass::Io,
        (WaitReason::Fault, _) => WaitClass::Fault,
        (WaitReason::Futex, _) if kind == Some(TargetKind::Gil) => WaitClass::Gil,
        // A condition variable in a wait for the GPU is how the library is told that the GPU is done.
        (WaitReason::Futex, Some(call)) if call.is_wait && kind == Some(TargetKind::Signal) => WaitClass::Gpu,
        (WaitReason::Futex, Some(_)) => WaitClass::Lock,
        (WaitReason::Futex, None) if kind == Some(TargetKind::Signal) && !is_for_a_python_lock(window, stretch) => {
            WaitClass::Input
        }
        (WaitReason::Futex, None) => WaitClass::Lock,
        (_, Some(call)) if call.is_wait => WaitClass::Gpu,
        (_, Some(_)) => WaitClass::InCall,
        (WaitReason::Sleep, None) => WaitClass::Sleep,
        (WaitReason::Poll | WaitReason::Stream, None) => of_stream(kind, stretch),
        (WaitReason::Ioctl | WaitReason::Other, None) => WaitClass::Other,
    })
}

/// Python's locks are semaphores, and so is what its queues and events signal with. A line of the program that takes a lock
/// calls it directly; queues and events wait in a function of theirs.
fn is_for_a_python_lock(window: &Window, stretch: &Stretch) -> bool {
    const TAKING: &[&str] = &["PyThread_acquire_lock", "sem_wait", "sem_clockwait", "sem_timedwait", "semlock_acquire"];
    let Some(stack) = stack(window, stretch) else { return false };
    let Some(line) = stack.frames.iter().position(|frame| frame.kind == FrameKind::Python) else { return false };
    let is_taking = |frame: &Arc<Frame>| TAKING.iter().any(|name| frame.function.contains(name));
    let frame = &stack.frames[line];
    let is_shared = frame.function.ends_with("__enter__")
        && frame.file.as_deref().is_some_and(|file| file.ends_with("multiprocessing/synchronize.py"));
    is_shared || (is_own_python(frame) && stack.frames[..line].iter().any(is_taking))
}

fn is_for_clients(window: &Window, stretch: &Stretch) -> bool {
    let target = stretch.target.and_then(|target| window.targets.get(&target));
    target.is_some_and(|target| target.name.starts_with(WaitTarget::CLIENT))
}

fn is_for_a_child(window: &Window, stretch: &Stretch, reason: WaitReason) -> bool {
    let waker = stretch.woken_by.and_then(|waker| window.process(waker));
    let is_child =
        matches!((waker, window.process(stretch.thread)), (Some(waker), Some(own)) if waker.parent_pid == own.pid);
    let is_python = |frame: &Arc<Frame>| {
        frame.kind == FrameKind::Python && frame.file.as_deref().is_some_and(|file| file.ends_with(STARTING_CHILDREN))
    };
    // Where no stack says what it is, the end of a wait by a child is most likely the child's end.
    let has_no_stack = stack(window, stretch).is_none();
    is_in_kernel_function(window, stretch, WAITING_FOR_A_CHILD)
        || (is_child && reason == WaitReason::Other && has_no_stack)
        || stack(window, stretch).is_some_and(|stack| stack.frames.iter().any(is_python))
}

fn is_in_kernel_function(window: &Window, stretch: &Stretch, functions: &[&str]) -> bool {
    let is_one = |frame: &Arc<Frame>| frame.kind == FrameKind::Kernel && functions.contains(&frame.function.as_str());
    stack(window, stretch).is_some_and(|stack| stack.frames.iter().any(is_one))
}

fn stack<'w>(window: &'w Window, stretch: &Stretch) -> Option<&'w LoadedStack> {
    stretch.stack.and_then(|stack| window.stacks.get(&stack))
}

fn of_stream(kind: Option<TargetKind>, stretch: &Stretch) -> WaitClass {
    match kind {
        // Whoever waits for many things at once is also woken by timers.
        Some(TargetKind::Eventfd) if stretch.woken_by.is_none() => WaitClass::Other,
        Some(TargetKind::Pipe | TargetKind::Unix | TargetKind::Eventfd) => WaitClass::Input,
        Some(TargetKind::Tcp | TargetKind::Socket) => WaitClass::Network,
        // Somebody made it go on, so it waited for somebody.
        None if stretch.woken_by.is_some() => WaitClass::Input,
        _ => WaitClass::Other,
    }
}
