//! Whose socket it is: the kernel tells of connections by the numbers of their sockets.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::procfs::Procfs;

/// Connections of processes that are not traced must not make us look all the time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The sockets that traced processes had when they were last looked at.
#[derive(Default)]
pub struct Sockets {
    owners: HashMap<u64, u32>,
    looked: Option<Instant>,
}

impl Sockets {
    /// Which of the processes has the socket with this number.
    pub fn owner(&mut self, inode: u64, procfs: &Procfs, pids: impl Iterator<Item = u32>) -> Option<u32> {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
        if !self.owners.contains_key(&inode) && is_due {
            self.looked = Some(Instant::now());
            self.owners = pids.flat_map(|pid| procfs.sockets(pid).into_iter().map(move |inode| (inode, pid))).collect();
        }
        self.owners.get(&inode).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_process_that_has_a_socket_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode: u64 = link.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
        let own = std::process::id();
        let (mut sockets, procfs) = (Sockets::default(), Procfs::new("/proc"));
        assert_eq!(sockets.owner(inode, &procfs, [1, own].into_iter()), Some(own));
        assert_eq!(sockets.owner(inode + 1_000_000, &procfs, [own].into_iter()), None);
    }
}
