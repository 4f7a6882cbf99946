//! From what the kernel says about waits to what the trace says: things that are waited on get names.

use std::path::Path;

use gpuwhy_capture::{Device, FinishedIo, IoSums, RawStretch, RawWork, StackHash, Target, TargetName, TaskId};
use gpuwhy_model::{
    CpuTaker, Forgotten, IoRequest, IoUsage, KernelWork, Name, OpId, Row, StackId, StandsFor, Stretch, TargetId,
    TargetKind, ThreadId, WaitTarget,
};
use hashbrown::HashMap;

use crate::clock::Clock;
use crate::processes::Processes;
use crate::stacks::StackNumbers;

/// Remembers names and sums that the kernel counts up.
#[derive(Default)]
pub struct Waits {
    devices: HashMap<(DeviceKind, Device), String>,
    /// What a process's addresses and descriptors are.
    targets: HashMap<(u32, Target), TargetId>,
    /// Numbers given out so far, and how many of them were forgotten.
    targets_met: u32,
    targets_forgotten: u32,
    io: HashMap<(Device, u32), IoSums>,
    /// Whether others connect to a port of a process.
    ports: HashMap<(u32, u16), Port>,
}

#[derive(Clone, Copy)]
struct Port {
    is_listening: bool,
    /// When somebody first asked, and when to look again.
    asked_ns: u64,
    look_again_ns: u64,
}

/// A program may wait for all its sockets at once before it begins to listen.
const LOOK_AGAIN_NS: u64 = 200_000_000;

/// Targets to remember; most are met again and again, and those that are not would add up.
const MOST_TARGETS: u32 = 4096;

/// What it takes to turn a record into a row.
pub struct Naming<'a> {
    pub clock: &'a Clock,
    pub processes: &'a mut Processes,
    pub ops: &'a [OpId],
    pub stacks: &'a mut StackNumbers,
    /// Where new names go.
    pub rows: &'a mut Vec<Row>,
}

impl Naming<'_> {
    fn thread(&mut self, task: TaskId, at_ns: u64) -> ThreadId {
        self.processes.thread(task, at_ns, self.rows)
    }

    fn other(&mut self, task: Option<TaskId>, at_ns: u64) -> Option<ThreadId> {
        task.map(|task| self.thread(task, at_ns))
    }

    fn taker(&mut self, taken: Option<(TaskId, u64)>, at_ns: u64) -> Option<CpuTaker> {
        taken.map(|(task, ns)| CpuTaker { thread: self.thread(task, at_ns), ns })
    }

    fn stack(&mut self, hash: Option<StackHash>) -> Option<StackId> {
        hash.map(|hash| self.stacks.id(hash))
    }

    fn op(&self, row: Option<u16>) -> Option<OpId> {
        self.ops.get(usize::from(row?)).copied()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum DeviceKind {
    Block,
    Character,
}

impl Waits {
    pub fn stretch(&mut self, raw: &RawStretch, naming: &mut Naming<'_>) -> Stretch {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        let [first, second] = raw.taken_by;
        let length_ns = raw.blocked_ns.saturating_add(raw.runqueue_ns);
        Stretch {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(length_ns)),
            thread: naming.thread(raw.task, end_ns),
            blocked_ns: raw.blocked_ns,
            runqueue_ns: raw.runqueue_ns,
            is_throttled: raw.is_throttled,
            reason: raw.reason,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming),
            woken_by: naming.other(raw.woken_by, end_ns),
            taken_by: [naming.taker(first, end_ns), naming.taker(second, end_ns)],
            all: StandsFor { count: raw.all_count, blocked_ns: raw.all_blocked_ns, runqueue_ns: raw.all_runqueue_ns },
            stack: naming.stack(raw.stack),
            waker_stack: naming.stack(raw.waker_stack),
        }
    }

    pub fn work(&mut self, raw: &RawWork, naming: &mut Naming<'_>) -> KernelWork {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        KernelWork {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            thread: naming.thread(raw.task, end_ns),
            kind: raw.kind,
            duration_ns: raw.duration_ns,
            op: naming.op(raw.row),
            target: self.target(raw.target, raw.task.pid, end_ns, naming),
            code: raw.code,
            all_count: raw.all_count,
            all_ns: raw.all_ns,
        }
    }

    /// The request that ended a wait of this thread.
    pub fn io(&mut self, raw: &FinishedIo, waiter: TaskId, naming: &mut Naming<'_>) -> IoRequest {
        let end_ns = naming.clock.unix_ns(raw.end_ns);
        IoRequest {
            start_ns: naming.clock.unix_ns(raw.end_ns.saturating_sub(raw.duration_ns)),
            duration_ns: raw.duration_ns,
            device: self.device(DeviceKind::Block, raw.device).to_owned(),
            bytes: raw.bytes,
            is_write: raw.is_write,
            issuer: naming.other(raw.issuer, end_ns),
            waiter: naming.thread(waiter, end_ns),
        }
    }

    /// What was asked of devices since the last time. `is_wanted` says whether anybody watched waited for one.
    pub fn io_usage(
        &mut self,
        sums: &[((Device, u32), IoSums)],
        is_wanted: bool,
        bucket_ns: u64,
        naming: &mut Naming<'_>,
    ) -> Vec<IoUsage> {
        let mut usage = Vec::new();
        for &((device, pid), now) in sums {
            let last = self.io.get(&(device, pid)).copied().unwrap_or_default();
            if !is_wanted || pid == 0 || now.requests <= last.requests {
                continue;
            }
            usage.push(IoUsage {
                bucket_ns,
                process: naming.processes.id(pid, bucket_ns, naming.rows),
                device: self.device(DeviceKind::Block, device).to_owned(),
                requests: now.requests - last.requests,
                bytes: now.bytes.saturating_sub(last.bytes),
                busy_ns: now.busy_ns.saturating_sub(last.busy_ns),
            });
        }
        self.io = sums.iter().copied().collect();
        usage
    }

    fn target(&mut self, target: Option<Target>, pid: u32, at_ns: u64, naming: &mut Naming<'_>) -> Option<TargetId> {
        let target = target?;
        if target.kind == TargetKind::Eventfd && self.begins_to_listen(pid, at_ns) {
            self.targets.retain(|(of, target), _| *of != pid || target.kind != TargetKind::Eventfd);
        }
        if let Some(&known) = self.targets.get(&(pid, target)) {
            return Some(known);
        }
        let process = naming.processes.id(pid, at_ns, naming.rows);
        let kind = match (target.kind, target.name) {
            (TargetKind::Signal | TargetKind::Lock, TargetName::Address(address))
                if naming.processes.is_interpreter_lock(pid, address) =>
            {
                TargetKind::Gil
            }
            (kind, _) => kind,
        };
        self.targets_met += 1;
        let id = TargetId(self.targets_met);
        let named = WaitTarget { process, kind, name: self.name(target, pid, at_ns) };
        naming.rows.push(Row::Name(Name::Target { id, target: named }));
        self.targets.insert((pid, target), id);
        Some(id)
    }

    /// Keeps the memory for targets small. Between two batches, so that all rows that cite one were handed on.
    pub fn forget_many(&mut self) -> Option<Row> {
        if self.targets_met - self.targets_forgotten < MOST_TARGETS {
            return None;
        }
        self.targets_forgotten = self.targets_met;
        self.targets.clear();
        Some(Row::Name(Name::Forgotten(Forgotten::Targets)))
    }

    /// The process is gone; its addresses mean something else from now on.
    pub fn process_gone(&mut self, pid: u32) {
        self.targets.retain(|&(of, _), _| of != pid);
        self.ports.retain(|&(of, _), _| of != pid);
    }

    fn name(&mut self, target: Target, pid: u32, at_ns: u64) -> String {
        match target.name {
            TargetName::Address(address) => format!("{address:#x}"),
            TargetName::Inode { device, inode } if target.kind == TargetKind::File => {
                format!("inode {inode} on {}", self.device(DeviceKind::Block, device))
            }
            // A server waits for all its sockets at once.
            TargetName::Inode { .. }
                if target.kind == TargetKind::Eventfd && self.is_listening(pid, ANY_PORT, at_ns) =>
            {
                format!("{CLIENT}of any of its ports")
            }
            TargetName::Inode { inode, .. } => format!("{}:[{inode}]", target.kind),
            TargetName::Peer { address, port, own_port } => {
                // Only a socket that listens has no peer. It may be closed by now, and what it accepted stays.
                if target.kind == TargetKind::Tcp && port == 0 {
                    let port = Port { is_listening: true, asked_ns: at_ns, look_again_ns: at_ns };
                    self.ports.insert((pid, own_port), port);
                }
                let peer = match address.to_ipv4_mapped() {
                    Some(address) => format!("{address}:{port}"),
                    None => format!("[{address}]:{port}"),
                };
                // Who connects asks, and who is connected to answers.
                match target.kind {
                    TargetKind::Tcp if self.is_listening(pid, own_port, at_ns) => format!("{CLIENT}{peer}"),
                    TargetKind::Tcp => format!("server {peer}"),
                    // It has no peer, so anybody may send something.
                    _ if port == 0 => format!("{CLIENT}of port {own_port}"),
                    _ => peer,
                }
            }
            TargetName::Device(device) => self.device(DeviceKind::Character, device).to_owned(),
        }
    }

    fn is_listening(&mut self, pid: u32, port: u16, at_ns: u64) -> bool {
        if self.ports.len() >= MOST_TARGETS as usize {
            self.ports.clear();
        }
        let look = || Port {
            is_listening: is_listening(Path::new("/proc"), pid, port),
            asked_ns: at_ns,
            look_again_ns: at_ns.saturating_add(LOOK_AGAIN_NS),
        };
        self.ports.entry((pid, port)).or_insert_with(look).is_listening
    }

    /// Whether a process that did not listen on any port does now. It is looked at less and less often.
    fn begins_to_listen(&mut self, pid: u32, at_ns: u64) -> bool {
        let port = self.ports.get_mut(&(pid, ANY_PORT));
        let Some(port) = port.filter(|port| !port.is_listening && at_ns >= port.look_again_ns) else { return false };
        port.is_listening = is_listening(Path::new("/proc"), pid, ANY_PORT);
        port.look_again_ns = at_ns.saturating_add(at_ns.saturating_sub(port.asked_ns));
        port.is_listening
    }

    fn device(&mut self, kind: DeviceKind, device: Device) -> &str {
        self.devices.entry((kind, device)).or_insert_with(|| device_name(Path::new("/sys/dev"), kind, device))
    }
}

const CLIENT: &str = WaitTarget::CLIENT;

/// Any port that the process itself listens on.
const ANY_PORT: u16 = 0;

/// Whether somebody listens on a TCP port where a process lives; for any port, whether the process does.
fn is_listening(proc: &Path, pid: u32, port: u16) -> bool {
    const LISTENING: &str = "0A";
    const INODE: usize = 9;
    let own = if port == ANY_PORT { sockets(proc, pid) } else { Vec::new() };
    let ends = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|family| {
        let table = std::fs::read_to_string(proc.join(format!("{pid}/net/{family}"))).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, address, _, state, ..] = fields[..] else { return false };
            let is_own = |inode: &&str| own.iter().any(|own| own == inode);
            let is_it = if port == ANY_PORT { fields.get(INODE).is_some_and(is_own) } else { address.ends_with(&ends) };
            state == LISTENING && is_it
        })
    })
}

/// The inodes of a process's sockets.
fn sockets(proc: &Path, pid: u32) -> Vec<String> {
    let descriptors = std::fs::read_dir(proc.join(format!("{pid}/fd"))).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let inode = |link: std::path::PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    links.filter_map(inode).collect()
}

/// The kernel's name for a device, or its number.
fn device_name(root: &Path, kind: DeviceKind, device: Device) -> String {
    let number = format!("{}:{}", device.major(), device.minor());
    let folder = match kind {
        DeviceKind::Block => "block",
        DeviceKind::Character => "char",
    };
    let uevent = std::fs::read_to_string(root.join(folder).join(&number).join("uevent")).unwrap_or_default();
    uevent.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map_or(number, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
";

    #[test]
    fn a_process_that_begins_to_listen_later_is_looked_at_again() {
        let (mut waits, pid, soon) = (Waits::default(), std::process::id(), LOOK_AGAIN_NS);
        assert!(!waits.is_listening(pid, ANY_PORT, 0));
        assert!(!waits.begins_to_listen(pid, soon));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!waits.begins_to_listen(pid, soon + 1), "not all the time");
        assert!(waits.begins_to_listen(pid, 2 * soon));
        assert!(waits.is_listening(pid, ANY_PORT, 2 * soon));
        drop(listener);
        assert!(!waits.begins_to_listen(pid, 9 * soon), "it has begun");
    }

    #[test]
    fn what_a_socket_accepted_that_is_closed_by_now_is_a_client() {
        let mut waits = Waits::default();
        let mut name = |port| {
            let name = TargetName::Peer { address: std::net::Ipv6Addr::LOCALHOST, port, own_port: 9 };
            waits.name(Target { kind: TargetKind::Tcp, name }, std::process::id(), 0)
        };
        assert_eq!(name(0), "client [::1]:0");
        assert_eq!(name(40_000), "client [::1]:40000");
    }

    #[test]
    fn a_port_that_others_connect_to_is_told_from_one_that_connects() {
        let root = tempfile::tempdir().unwrap();
        let (own, other) = (root.path().join("7"), root.path().join("8"));
        for process in [&own, &other] {
            std::fs::create_dir_all(process.join("net")).unwrap();
            std::fs::create_dir_all(process.join("fd")).unwrap();
            std::fs::write(process.join("net/tcp"), TABLE).unwrap();
        }
        symlink("socket:[4711]", own.join("fd/3")).unwrap();
        symlink("socket:[4712]", other.join("fd/3")).unwrap();
        assert!(is_listening(root.path(), 7, 0x1F90) && !is_listening(root.path(), 7, 0xC350));
        assert!(is_listening(root.path(), 7, ANY_PORT), "the process listens itself");
        assert!(!is_listening(root.path(), 8, ANY_PORT), "another process does");
        assert!(!is_listening(root.path(), 9, 0x1F90), "there is no such process");
    }
}
