//! Why a thread was off the CPU without being runnable.

use crate::api::words;

words! {
    /// What a blocked thread waited for, read from its registers at the moment it left the CPU.
    /// The order is the kernel side's (`enum wait_reason` in `wire.h`).
    WaitReason {
        /// A futex: mutexes, condition variables, joins.
        Futex = "futex",
        /// Block I/O: the kernel counted the thread as waiting for a device.
        Io = "io",
        /// A page fault that needed I/O.
        Fault = "fault",
        /// A sleep the program asked for.
        Sleep = "sleep",
        /// poll, select or epoll.
        Poll = "poll",
        /// A read or write of a pipe, socket or other stream.
        Stream = "stream",
        /// An ioctl, usually inside the GPU's kernel driver.
        Ioctl = "ioctl",
        Other = "other",
    }
}

impl WaitReason {
    pub const COUNT: usize = Self::ALL.len();
}
