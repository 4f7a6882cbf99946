//! What programs and people put on the timeline. A tracer listens on a socket in a folder that others know. A message is a
//! datagram with a line `key=value` for each thing that is told, about the process that sends it; a first line `@1234` says
//! that it is about another process, `@all` that it is about all of them. Nobody who sends ever waits for the tracer.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, bounded};
use gpuwhy_model::Label;
use hashbrown::HashMap;

use crate::clock::Reading;
use crate::procfs::Procfs;

/// Where tracers listen, and those look who have something to tell.
pub const FOLDER: &str = "/run/gpuwhy";

const MOST_BYTES: usize = 4096;
const MOST_KEY_BYTES: usize = 64;
const MOST_VALUE_BYTES: usize = 256;
/// Things that a user may tell in a second.
const MOST_A_SECOND: usize = 1000;
/// Things that may wait until they are taken, which is once a second.
const MOST_WAITING: usize = 1 << 14;
const LOOK_UP_EVERY: Duration = Duration::from_millis(300);

/// Something that was told.
#[derive(Debug, PartialEq, Eq)]
pub struct Heard {
    pub at_ns: u64,
    /// The process that it is about, or all.
    pub pid: Option<u32>,
    pub key: String,
    pub value: String,
}

/// Whom a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Sender,
    Process(u32),
    All,
}

/// Something to tell, from `key=value`, or why it cannot be told.
pub fn label(text: &str) -> Result<Label, &'static str> {
    let (key, value) = text.split_once('=').ok_or("a label is a key and a value: step=12")?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    if key.is_empty() || !key.chars().all(is_plain) {
        return Err("a key is made of letters, digits, and any of _-./");
    }
    if key.len() > MOST_KEY_BYTES {
        return Err("a key has at most 64 bytes");
    }
    if value.len() > MOST_VALUE_BYTES {
        return Err("a value has at most 256 bytes");
    }
    if value.chars().any(char::is_control) {
        return Err("a value is one line of plain text");
    }
    Ok(Label { key: key.to_owned(), value: value.to_owned() })
}

/// Tells all tracers that listen in a folder, and says how many there are.
pub fn tell(folder: &Path, about: About, labels: &[Label]) -> anyhow::Result<usize> {
    let socket = UnixDatagram::unbound().context("make a socket")?;
    socket.set_write_timeout(Some(Duration::from_secs(1))).context("limit how long sending may take")?;
    let mut told = 0;
    for listener in sockets(folder) {
        // Nobody listens where a tracer was killed.
        match socket.send_to(message(about, labels).as_bytes(), &listener) {
            Ok(_) => told += 1,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("send to {}", listener.display())),
        }
    }
    Ok(told)
}

fn message(about: About, labels: &[Label]) -> String {
    let mut text = match about {
        About::Sender => String::new(),
        About::Process(pid) => format!("@{pid}\n"),
        About::All => "@all\n".to_owned(),
    };
    for Label { key, value } in labels {
        // A string takes all that is written to it.
        let _ = writeln!(text, "{key}={value}");
    }
    text
}

fn parse(message: &[u8]) -> Option<(About, Vec<Label>)> {
    let text = std::str::from_utf8(message).ok()?.trim_end_matches('\n');
    let (about, lines) = match text.strip_prefix('@') {
        None => (About::Sender, text),
        Some(rest) => match rest.split_once('\n')? {
            ("all", lines) => (About::All, lines),
            (pid, lines) => (About::Process(pid.parse().ok()?), lines),
        },
    };
    Some((about, lines.split('\n').map(label).collect::<Result<_, _>>().ok()?))
}

/// A tracer that listens. It ends when this is dropped.
pub struct Listening {
    heard: Receiver<Heard>,
    state: Arc<State>,
    path: PathBuf,
}

#[derive(Default)]
struct State {
    refused: AtomicU64,
    is_over: AtomicBool,
}

impl Listening {
    pub fn start(folder: &Path, procfs: Procfs) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        remove_left_over(folder);
        let path = folder.join(format!("{}.sock", std::process::id()));
        let socket = UnixDatagram::bind(&path).with_context(|| format!("listen on {}", path.display()))?;
        // Whoever runs programs here may say what they do.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).context("let others send")?;
        ask_for_credentials(&socket).context("ask who sends")?;
        socket.set_read_timeout(Some(LOOK_UP_EVERY)).context("limit how long to wait")?;
        let (outbox, heard) = bounded(MOST_WAITING);
        let state = Arc::new(State::default());
        let listener =
            Listener { socket, procfs, outbox, state: Arc::clone(&state), told: Told::default(), last_ns: 0 };
        thread::spawn(move || listener.run());
        Ok(Self { heard, state, path })
    }

    /// What was told since the last time.
    pub fn take(&self) -> Vec<Heard> {
        self.heard.try_iter().collect()
    }

    /// How often something was told and not taken.
    pub fn refused(&self) -> u64 {
        self.state.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sockets of tracers that were killed.
fn remove_left_over(folder: &Path) {
    let Ok(probe) = UnixDatagram::unbound() else { return };
    for path in sockets(folder) {
        if probe.connect(&path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            // Another tracer may do the same.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn sockets(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
}

struct Listener {
    socket: UnixDatagram,
    procfs: Procfs,
    outbox: Sender<Heard>,
    state: Arc<State>,
    told: Told,
    /// When something was heard last: each has a time of its own, so that they stay in their order.
    last_ns: u64,
}

/// How much each user has told in this second.
struct Told {
    since: Instant,
    by_user: HashMap<u32, usize>,
}

impl Default for Told {
    fn default() -> Self {
        Self { since: Instant::now(), by_user: HashMap::new() }
    }
}

impl Told {
    fn may_tell(&mut self, uid: u32, labels: usize) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            *self = Self::default();
        }
        let told = self.by_user.entry(uid).or_default();
        *told += labels;
        *told <= MOST_A_SECOND
    }
}

impl Listener {
    fn run(mut self) {
        // One byte more than a message may have shows that it has more.
        let mut buffer = [0; MOST_BYTES + 1];
        while !self.state.is_over.load(Ordering::Relaxed) {
            match receive(&self.socket, &mut buffer) {
                Ok((length, sender)) => {
                    let at_ns = Reading::now().unix_ns;
                    if self.hear(&buffer[..length], sender, at_ns).is_none() {
                        self.state.refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return tracing::warn!("nothing is heard any more: {error}"),
            }
        }
    }

    /// `None` where it is not taken.
    fn hear(&mut self, message: &[u8], sender: Option<libc::ucred>, at_ns: u64) -> Option<()> {
        let sender = sender?;
        let (about, labels) = parse(message).filter(|_| message.len() <= MOST_BYTES)?;
        if !self.told.may_tell(sender.uid, labels.len()) {
            return None;
        }
        let pid = match about {
            About::All => None,
            // A process that cannot be seen from here has no number here.
            About::Sender => Some(u32::try_from(sender.pid).ok().filter(|pid| *pid > 0)?),
            // By the kernel's word, and it may have ended since.
            About::Process(pid) if i64::from(pid) == i64::from(sender.pid) => Some(pid),
            About::Process(pid) => {
                let owner = self.procfs.uid(pid)?;
                Some(pid).filter(|_| sender.uid == 0 || sender.uid == owner)?.into()
            }
        };
        for Label { key, value } in labels {
            self.last_ns = at_ns.max(self.last_ns + 1);
            self.outbox.try_send(Heard { at_ns: self.last_ns, pid, key, value }).ok()?;
        }
        Some(())
    }
}

fn ask_for_credentials(socket: &UnixDatagram) -> io::Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option is a number whose address and size are given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How long a message is, and who has sent it by the kernel's word.
fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<(usize, Option<libc::ucred>)> {
    // Of words, since a header has to be aligned.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a header of zeros and null pointers is a valid one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to a part and to room for control messages, with their sizes, which outlive the call.
    // File descriptors that come along are closed by the kernel: there is no room for them.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the header in; the first control message is null or lies within `control`.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header).as_ref() };
    let is_credentials = |one: &&libc::cmsghdr| {
        one.cmsg_level == libc::SOL_SOCKET
            && one.cmsg_type == libc::SCM_CREDENTIALS
            // SAFETY: it only computes.
            && one.cmsg_len >= unsafe { libc::CMSG_LEN(size_of::<libc::ucred>() as u32) } as _
    };
    // SAFETY: its type and length say that credentials follow.
    let sender =
        first.filter(is_credentials).map(|one| unsafe { libc::CMSG_DATA(one).cast::<libc::ucred>().read_unaligned() });
    Ok((length as usize, sender))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Label {
        Label { key: key.into(), value: value.into() }
    }

    fn heard(listening: &Listening, count: usize) -> Vec<Heard> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut heard = Vec::new();
        while heard.len() < count {
            assert!(Instant::now() < deadline, "{heard:?}");
            heard.extend(listening.take());
        }
        heard
    }

    fn wait_for_refusals(listening: &Listening, count: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while listening.refused() < count {
            assert!(Instant::now() < deadline, "{}", listening.refused());
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_told_comes_with_whom_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let listening = Listening::start(folder.path(), Procfs::default()).unwrap();
        let own = std::process::id();
        for about in [About::Sender, About::All, About::Process(own)] {
            assert_eq!(tell(folder.path(), about, &[one("step", "12"), one("note", "a = b")]).unwrap(), 1);
        }
        let heard = heard(&listening, 6);
        let told: Vec<_> = heard.iter().map(|one| (one.pid, one.key.as_str(), one.value.as_str())).collect();
        let both = |pid| [(pid, "step", "12"), (pid, "note", "a = b")];
        assert_eq!(told, [both(Some(own)), both(None), both(Some(own))].concat());
    }

    #[test]
    fn what_is_malformed_is_refused_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let listening = Listening::start(folder.path(), Procfs::default()).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let long = format!("step={}", "9".repeat(MOST_VALUE_BYTES + 1));
        let longer = "a=1\n".repeat(MOST_BYTES);
        let bad: &[&[u8]] = &[
            b"",
            b"step",
            b"=3",
            b"st ep=3",
            b"step=1\x1b[2J",
            b"step=\xff",
            long.as_bytes(),
            longer.as_bytes(),
            b"@all",
            b"@\nstep=1",
            b"@4294967295\nstep=1",
            b"step=1\n\nepoch=2",
        ];
        for message in bad {
            sender.send_to(message, &listening.path).unwrap();
        }
        wait_for_refusals(&listening, bad.len() as u64);
        assert_eq!(tell(folder.path(), About::Sender, &[one("step", "")]).unwrap(), 1);
        assert_eq!(heard(&listening, 1)[0].value, "");
        assert_eq!(listening.refused(), bad.len() as u64);
    }

    #[test]
    fn a_user_who_tells_too_much_is_not_heard_for_a_while() {
        let mut told = Told::default();
        assert!((0..MOST_A_SECOND).all(|_| told.may_tell(7, 1)));
        assert!(!told.may_tell(7, 1) && told.may_tell(8, 1));
        told.since -= Duration::from_secs(1);
        assert!(told.may_tell(7, MOST_A_SECOND) && !told.may_tell(7, 1));
    }

    #[test]
    fn sockets_of_tracers_that_are_gone_are_removed_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (left, other) = (folder.path().join("1.sock"), folder.path().join("2.sock"));
        drop(UnixDatagram::bind(&left).unwrap());
        let listens = UnixDatagram::bind(&other).unwrap();
        let listening = Listening::start(folder.path(), Procfs::default()).unwrap();
        assert!(!left.exists() && other.exists());
        assert_eq!(tell(folder.path(), About::All, &[one("step", "1")]).unwrap(), 2);
        drop((listening, listens));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(tell(folder.path(), About::All, &[one("step", "1")]).unwrap(), 0);
    }
}
