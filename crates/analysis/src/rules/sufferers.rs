//! Who suffers from what happens to a host or to a GPU.

use crate::case::{JobCase, victim};
use crate::dispatcher::Dispatcher;

/// The thread of that host that feeds a GPU the longest; of that GPU, and in that process, where any does.
pub fn longest<'s, 'w>(
    case: &'s JobCase<'s, 'w>,
    host: u16,
    device: Option<u32>,
    pid: Option<u32>,
) -> Option<&'s Dispatcher<'w>> {
    let window = case.situation.window;
    let is_there = |thread: &&Dispatcher<'_>| thread.process_id.is_some_and(|process| window.host_of(process) == host);
    let fits = |thread: &&Dispatcher<'_>| {
        let victim = victim(case.situation, thread.id);
        (pid == Some(victim.pid), device.is_some() && device == victim.device, thread.wall_ns())
    };
    case.dispatchers.iter().filter(is_there).max_by_key(fits)
}
