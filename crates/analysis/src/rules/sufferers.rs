//! Who suffers from what happens to a host or to a GPU.

use std::collections::BTreeMap;

use gpuwhy_model::ProcessId;

use crate::case::{JobCase, victim};
use crate::dispatcher::Dispatcher;

/// The thread of that host that feeds a GPU the longest; of that GPU, and in that process, where any does.
pub fn longest<'s, 'w>(
    case: &'s JobCase<'s, 'w>,
    host: u16,
    device: Option<u32>,
    pid: Option<u32>,
) -> Option<&'s Dispatcher<'w>> {
    let fits = |thread: &&Dispatcher<'_>| {
        let victim = victim(case.situation, thread.id);
        (pid == Some(victim.pid), device.is_some() && device == victim.device, thread.wall_ns(), thread.launches)
    };
    on_host(case, host).max_by_key(fits)
}

/// Of each process that feeds that GPU, the thread that does so the longest; the one that does overall comes first. `None` is for
/// those of which nobody knows which GPU they use.
pub fn users<'s, 'w>(case: &'s JobCase<'s, 'w>, host: u16, device: Option<u32>) -> Vec<&'s Dispatcher<'w>> {
    let mut longest: BTreeMap<Option<ProcessId>, &Dispatcher<'w>> = BTreeMap::new();
    for thread in on_host(case, host).filter(|thread| victim(case.situation, thread.id).device == device) {
        let known = longest.entry(thread.process_id).or_insert(thread);
        if thread.wall_ns() > known.wall_ns() {
            *known = thread;
        }
    }
    let mut users: Vec<_> = longest.into_values().collect();
    users.sort_by_key(|thread| std::cmp::Reverse((thread.wall_ns(), thread.launches)));
    users
}

fn on_host<'s, 'w>(case: &'s JobCase<'s, 'w>, host: u16) -> impl Iterator<Item = &'s Dispatcher<'w>> {
    let window = case.situation.window;
    let is_there =
        move |thread: &&Dispatcher<'_>| thread.process_id.is_some_and(|process| window.host_of(process) == host);
    case.dispatchers.iter().filter(is_there)
}
