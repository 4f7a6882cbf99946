//! Tells the service manager that has started the tracer how it is doing, in the words of `sd_notify(3)`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use gpuwhy_agent::{CallSeen, Live, Watch};
use gpuwhy_questions::units::count;

/// Hands everything on to another watch.
pub struct Notified {
    watch: Box<dyn Watch>,
    manager: Manager,
    is_ready: bool,
}

impl Notified {
    /// Only a tracer that a service manager has started tells anybody.
    pub fn wrap(watch: Box<dyn Watch>) -> Box<dyn Watch> {
        match Manager::of_environment() {
            Some(manager) => Box::new(Self { watch, manager, is_ready: false }),
            None => watch,
        }
    }
}

impl Watch for Notified {
    fn wants_calls(&self) -> bool {
        self.watch.wants_calls()
    }

    fn call(&mut self, call: &CallSeen<'_>) {
        self.watch.call(call);
    }

    /// It comes when what was there to attach is attached, and as long as records are read and named.
    fn second(&mut self, live: &Live) {
        self.watch.second(live);
        if !self.is_ready {
            self.is_ready = true;
            self.manager.tell("READY=1");
        }
        self.manager.tell(&format!("WATCHDOG=1\nSTATUS={} calls seen", count(live.totals.seen)));
    }

    fn note(&mut self, text: &str) {
        self.watch.note(text);
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        self.manager.tell("STOPPING=1");
    }
}

struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Manager {
    fn of_environment() -> Option<Self> {
        let name = std::env::var("NOTIFY_SOCKET").ok().filter(|name| !name.is_empty())?;
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(&name),
        };
        let (socket, address) = UnixDatagram::unbound().and_then(|socket| Ok((socket, address?))).ok()?;
        // A manager that does not listen is no reason to wait.
        socket.set_nonblocking(true).ok()?;
        Some(Self { socket, address })
    }

    fn tell(&self, what: &str) {
        if let Err(error) = self.socket.send_to_addr(what.as_bytes(), &self.address) {
            tracing::warn!("the service manager is not told {what:?}: {error}");
        }
    }
}
