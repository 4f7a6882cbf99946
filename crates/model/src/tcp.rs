//! What goes wrong between hosts.

use crate::ProcessId;
use crate::api::words;
use crate::record::record;

words! {
    /// What happened on a connection, by the kernel's name for it.
    TcpEventKind {
        /// A segment was sent again.
        Retransmit = "tcp_retransmit_skb",
    }
}

record! {
    /// Something that happened on a TCP connection of a traced process.
    #[derive(Clone, Debug, PartialEq, Eq)]
    TcpEvent in tcp_events () since 1 "One row per TCP event of traced processes: segments that were sent again."
    {
        /// When it happened.
        at_ns in timestamp_ns: u64 [unit("ns since epoch")];
        /// Process that has the socket.
        pid: Option<u32>;
        /// The kernel's name for it: `tcp_retransmit_skb`, a segment was sent again.
        kind in event: TcpEventKind;
        /// Local address.
        saddr: Option<String>;
        /// Local port.
        sport: Option<u16>;
        /// Remote address.
        daddr: Option<String>;
        /// Remote port.
        dport: Option<u16>;
        /// `processes.id` of who has the socket.
        process in process_id: Option<ProcessId> [since(7)];
        /// The connection's usual round trip, as the kernel knows it.
        round_trip_ns: Option<u64> [unit("ns"), since(7)];
    }
}

impl TcpEvent {
    /// This end of the connection, as an address with a port.
    pub fn local(&self) -> Option<String> {
        end(self.saddr.as_deref(), self.sport)
    }

    /// The other end.
    pub fn remote(&self) -> Option<String> {
        end(self.daddr.as_deref(), self.dport)
    }
}

fn end(address: Option<&str>, port: Option<u16>) -> Option<String> {
    let (address, port) = (address?, port?);
    Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}
