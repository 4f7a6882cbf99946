//! Memory that is given back when it is no longer used.

/// Buffers from this size on are the system's again as soon as they are freed.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 1 << 20;
/// What is freed of smaller ones is kept up to this much in each thread: batches of records come all the time, and fresh
/// pages for each would cost more than all the rest of draining.
#[cfg(target_env = "gnu")]
const KEPT: i32 = 4 << 20;

/// Lets large buffers go back to the system. By itself, the C library keeps ever larger ones for the next time, and those
/// of this process are tables that are compiled and files that are read once.
pub fn give_back_large_buffers() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls change settings of the allocator, which allows that at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}
